"""`/audit`: what administrators and operators have done."""

from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.params import FromQuery, QueryParameter

from taskmq.api.accounts import AuditEntries, AuditEntryView, ChainLinks, ChainView
from taskmq.api.values import Instant
from taskmq.app_api.views import instant_text, milliseconds_of, rendered
from taskmq.contracts.identity import AuditFilter
from taskmq.model.identity import AuditRecord, Permission, Scope
from taskmq.operations.audit import chain_head, exported, verify_chain
from taskmq.operations.audit.actions import audit_subject
from taskmq.server.inputs import CallerGiven, Limit, OwnJobs
from taskmq.server.settings import API, MOST_PER_PAGE
from taskmq.server.sign_in import accounts_of

__all__ = ["AUDIT_HANDLERS"]


@get(
    f"{API}/audit",
    permission=Permission.AUDIT_READ,
    operation_id="listAuditEntries",
    summary="List audit entries",
    tags=["audit"],
)
async def list_entries(
    request: Request[Any, Any, Any],
    caller: CallerGiven,
    jobs: OwnJobs,
    action: Annotated[str, QueryParameter(max_length=64, description="Its beginning, such as `user.`")] = "",
    user_id: Annotated[str, QueryParameter(max_length=64)] = "",
    kind: Annotated[str, QueryParameter(max_length=64)] = "",
    subject: Annotated[str, QueryParameter(max_length=255, description="An id or a name, also a job's own.")] = "",
    since: FromQuery[Instant | None] = None,
    until: FromQuery[Instant | None] = None,
    after: Annotated[int | None, QueryParameter(ge=0, le=1 << 62)] = None,
    limit: Limit = 50,
) -> AuditEntries:
    """What administrators and operators have done, the last first; a tenant's admin sees what is the tenant's."""
    scope = Scope(None if caller.tenant is None else frozenset({caller.tenant}))
    which = AuditFilter(
        action=action,
        user_id=user_id,
        kind=kind,
        subject=await audit_subject(jobs, subject, kind=kind),
        since=None if since is None else milliseconds_of(since),
        until=None if until is None else milliseconds_of(until),
    )
    page = await accounts_of(request.app.state).store.audit.entries(scope, which, after=after, limit=limit)
    return AuditEntries(rendered(_view, page.entries), page.after)


@get(
    f"{API}/audit/verify",
    permission=Permission.AUDIT_VERIFY,
    operation_id="verifyAudit",
    summary="Verify the audit",
    tags=["audit"],
)
async def verify_audit(
    request: Request[Any, Any, Any],
    head: Annotated[
        str, QueryParameter(max_length=100, description="POSITION:HASH as it was written down; empty for none.")
    ] = "",
) -> ChainView:
    """See whether an entry was changed or taken away since it was sealed; the whole chain is looked through."""
    store = accounts_of(request.app.state).store.audit
    report = await verify_chain(store, expected=chain_head(head) if head else None)
    return ChainView(
        is_whole=not report.fault,
        entries=report.head.position,
        head=f"{report.head.position}:{report.head.hash.hex()}",
        erased=report.erased,
        unsealed=report.unsealed,
        fault=report.fault,
    )


@get(
    f"{API}/audit/chain",
    permission=Permission.AUDIT_VERIFY,
    operation_id="exportAudit",
    summary="Export the audit",
    tags=["audit"],
)
async def export_audit(
    request: Request[Any, Any, Any],
    after: Annotated[int, QueryParameter(ge=0, le=1 << 62)] = 0,
    limit: Limit = MOST_PER_PAGE,
) -> ChainLinks:
    """The sealed entries in the order of the chain: a reader can verify them without the database."""
    page = await accounts_of(request.app.state).store.audit.chain(after=after, limit=limit)
    return ChainLinks([exported(record) for record in page], after + len(page) if len(page) == limit else None)


AUDIT_HANDLERS: Final[tuple[Any, ...]] = (list_entries, verify_audit, export_audit)


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
