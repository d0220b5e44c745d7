"""`/audit`: the log of administrators' and operators' actions."""

from typing import Annotated, Any, Final

from litestar import get
from litestar.params import FromQuery, QueryParameter

from taskmq.api.accounts import AuditEntries, ChainLinks, ChainView
from taskmq.api.values import Instant
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, Limit
from taskmq.server.settings import API, MOST_PER_PAGE


@get(
    f"{API}/audit",
    permission=Permission.AUDIT_READ,
    operation_id="listAuditEntries",
    summary="List audit entries",
    tags=["audit"],
)
async def list_entries(
    api: ApiGiven,
    action: Annotated[str, QueryParameter(max_length=64, description="Prefix of the action, such as `user.`")] = "",
    user_id: Annotated[str, QueryParameter(max_length=64)] = "",
    kind: Annotated[str, QueryParameter(max_length=64)] = "",
    subject: Annotated[str, QueryParameter(max_length=255, description="Id or name of the affected object.")] = "",
    since: FromQuery[Instant | None] = None,
    until: FromQuery[Instant | None] = None,
    after: Annotated[int | None, QueryParameter(ge=0, le=1 << 62)] = None,
    limit: Limit = 50,
) -> AuditEntries:
    """Return audit entries, newest first. A tenant's admin sees only the tenant's entries."""
    return await api.audit.page(
        action=action,
        user_id=user_id,
        kind=kind,
        subject=subject,
        since=since,
        until=until,
        after=after,
        limit=limit,
    )


@get(
    f"{API}/audit/verify",
    permission=Permission.AUDIT_VERIFY,
    operation_id="verifyAudit",
    summary="Verify the audit log",
    tags=["audit"],
)
async def verify_audit(
    api: ApiGiven,
    head: Annotated[
        str, QueryParameter(max_length=100, description="POSITION:HASH recorded earlier, to compare.")
    ] = "",
) -> ChainView:
    """Check the whole hash chain for entries that were changed or removed after they were sealed."""
    return await api.audit.verify(head=head)


@get(
    f"{API}/audit/chain",
    permission=Permission.AUDIT_VERIFY,
    operation_id="exportAudit",
    summary="Export the audit log",
    tags=["audit"],
)
async def export_audit(
    api: ApiGiven,
    after: Annotated[int, QueryParameter(ge=0, le=1 << 62)] = 0,
    limit: Limit = MOST_PER_PAGE,
) -> ChainLinks:
    """Return sealed entries in chain order, so that they can be verified without the database."""
    return await api.audit.chain(after=after, limit=limit)


AUDIT_HANDLERS: Final[tuple[Any, ...]] = (list_entries, verify_audit, export_audit)
