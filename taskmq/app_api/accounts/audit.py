"""The audit: actions of administrators and operators."""

from datetime import datetime

from taskmq.api.accounts import AuditEntries, AuditEntryView, ChainLinks, ChainView
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, rendered
from taskmq.contracts.identity import AuditFilter, AuditStore
from taskmq.model.identity import AuditRecord, Scope
from taskmq.operations.audit import export_record, parse_chain_head, verify_chain
from taskmq.operations.audit.actions import audit_subject
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["AppAudit"]


class AppAudit(AppCalls):
    """The audit's entries: of the caller's tenant, or all."""

    async def page(
        self,
        *,
        action: str = "",
        user_id: str = "",
        kind: str = "",
        subject: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> AuditEntries:
        """A page of the entries that fit, the last one first; `next` is the `after` of the next one.

        Args:
            action: its beginning, such as `user.`.
            subject: an id or a name, also a job's own.
        """
        tenant = self._caller.tenant
        jobs = TenantJobs(self._app, tenant, by=self._caller.name)
        which = AuditFilter(
            action=action,
            user_id=user_id,
            kind=kind,
            subject=await audit_subject(jobs, subject, kind=kind),
            since=None if since is None else milliseconds_of(since),
            until=None if until is None else milliseconds_of(until),
        )
        scope = Scope(None if tenant is None else frozenset({tenant}))
        page = await self._audit.entries(scope, which, after=after, limit=limit)
        return AuditEntries(rendered(_view, page.entries), page.after)

    async def verify(self, *, head: str = "") -> ChainView:
        """Whether an entry was changed or taken away since it was sealed; the whole chain is looked through.

        Args:
            head: POSITION:HASH that was written down: the chain has to have it.

        Raises:
            InvalidOption: the head is none.
        """
        report = await verify_chain(self._audit, expected=parse_chain_head(head) if head else None)
        return ChainView(
            is_whole=not report.fault,
            entries=report.head.position,
            head=f"{report.head.position}:{report.head.hash.hex()}",
            erased=report.erased,
            unsealed=report.unsealed,
            fault=report.fault,
        )

    async def chain(self, *, after: int = 0, limit: int = MOST_PER_PAGE) -> ChainLinks:
        """Sealed entries in the order of the chain; `next` is the `after` of those behind them."""
        page = await self._audit.chain(after=after, limit=limit)
        return ChainLinks(
            [export_record(record) for record in page], after + len(page) if len(page) == limit else None
        )

    @property
    def _audit(self) -> AuditStore:
        return self._app.sessions.store().identity.audit


def _view(record: AuditRecord) -> AuditEntryView:
    entry = record.entry()
    return AuditEntryView(
        number=record.number,
        at=instant_text(record.at),
        action=record.action,
        kind=record.kind,
        subject=record.subject,
        tenant=record.tenant,
        user_id=record.user_id,
        user=entry.user,
        via=record.via,
        address=entry.address,
        request_id=record.request_id,
        before=entry.before,
        after=entry.after,
        note=entry.note,
        position=record.position,
    )
