"""`/audit`: the log of administrators' and operators' actions."""

from typing import Annotated, Final

from litestar.params import FromQuery, QueryParameter

from taskmq.api.accounts import AuditEntries, ChainLinks, ChainView
from taskmq.api.values import MOST_PER_PAGE, Instant
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Limit

AUDIT_HANDLERS: Final = Handlers("audit")


@AUDIT_HANDLERS.handle("GET /audit", "listAuditEntries", Permission.AUDIT_READ, "List audit entries")
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


@AUDIT_HANDLERS.handle("GET /audit/verify", "verifyAudit", Permission.AUDIT_VERIFY, "Verify the audit log")
async def verify_audit(
    api: ApiGiven,
    head: Annotated[
        str, QueryParameter(max_length=100, description="POSITION:HASH recorded earlier, to compare.")
    ] = "",
) -> ChainView:
    """Check the whole hash chain for entries that were changed or removed after they were sealed."""
    return await api.audit.verify(head=head)


@AUDIT_HANDLERS.handle("GET /audit/chain", "exportAudit", Permission.AUDIT_VERIFY, "Export the audit log")
async def export_audit(
    api: ApiGiven,
    after: Annotated[int, QueryParameter(ge=0, le=1 << 62)] = 0,
    limit: Limit = MOST_PER_PAGE,
) -> ChainLinks:
    """Return sealed entries in chain order, so that they can be verified without the database."""
    return await api.audit.chain(after=after, limit=limit)
