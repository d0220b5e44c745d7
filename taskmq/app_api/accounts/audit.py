"""The audit log of administrators' and operators' actions."""

from datetime import datetime

from taskmq.api.accounts import AuditEntries, AuditEntryView, ChainLinks, ChainView
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, render_all, view_of
from taskmq.contracts.identity import AuditFilter, AuditStore
from taskmq.model.identity import AuditRecord, Scope
from taskmq.operations.audit import export_record, parse_chain_head, verify_chain
from taskmq.operations.audit.actions import audit_subject
from taskmq.operations.tenant_jobs import TenantJobs


class AppAudit(AppCalls):
    """The audit entries of the caller's tenant, or of all."""

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
        """Return a page of matching entries, newest first; `next` is the `after` of the next page.

        Args:
            action: a prefix, such as `user.`.
            subject: the id or name of the affected object.
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
        return AuditEntries(render_all(_view, page.entries), page.after)

    async def verify(self, *, head: str = "") -> ChainView:
        """Check the whole hash chain for entries that were changed or removed after they were sealed.

        Args:
            head: a POSITION:HASH recorded earlier, which the chain must contain.

        Raises:
            InvalidOption: the head is malformed.
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
        page = await self._audit.chain(after=after, limit=limit)
        return ChainLinks(
            [export_record(record) for record in page], after + len(page) if len(page) == limit else None
        )

    @property
    def _audit(self) -> AuditStore:
        return self._app.sessions.store().identity.audit


def _view(record: AuditRecord) -> AuditEntryView:
    entry = record.entry()
    return view_of(
        AuditEntryView,
        record,
        at=instant_text(record.at),
        user=entry.user,
        address=entry.address,
        before=entry.before,
        after=entry.after,
        note=entry.note,
    )
