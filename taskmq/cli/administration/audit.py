"""`taskmq audit`."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.actor import me
from taskmq.cli.administration.store import at_store, user_named
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import note, print_record, print_rows, when, write_json
from taskmq.cli.server_link import over_http
from taskmq.contracts.identity import AuditFilter
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditRecord, Scope
from taskmq.operations.audit import ChainReport, chain_head, entries, exported, verify_chain

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.contracts.identity import IdentityStore

__all__ = ["AUDIT_COLUMNS", "app"]

app = App(
    name="audit",
    help="What administrators and operators have done: list, verify, export.",
    result_action="return_value",
)

AUDIT_COLUMNS: Final = ("at", "user", "action", "kind", "subject", "tenant", "address", "before", "after", "note")


@app.command(name="list")
@over_http("tenants:list_entries")
def list_entries(
    *,
    action: str = "",
    user: str | None = None,
    kind: str = "",
    subject: str = "",
    tenant: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 50,
) -> None:
    """List entries, the last one first.

    Parameters
    ----------
    action
        Its beginning: user. are all actions on users.
    user
        Who has done it.
    kind
        To what kind of thing: user, token, tenant, queue, job, ...
    subject
        To which one: its id or name, also a job's own, such as @acme:order-17.
    tenant
        Whose.
    since
        From when on, such as 2027-01-31T08:00; UTC unless it says otherwise.
    until
        Before when.
    limit
        How many at most.
    """
    scope = EVERYTHING_OF_ALL if tenant is None else Scope(frozenset({tenant}))

    async def run(target: "TaskMQ") -> list[AuditRecord]:
        from taskmq.operations.audit.actions import audit_subject
        from taskmq.operations.tenant_jobs import TenantJobs

        await target.sessions.store().check()
        store, jobs = target.sessions.store().identity, TenantJobs(target, tenant, by=me())
        which = AuditFilter(
            action=action,
            user_id="" if user is None else (await user_named(store, user)).id,
            kind=kind,
            subject=await audit_subject(jobs, subject, kind=kind),
            since=_instant(since),
            until=_instant(until),
        )
        return [record async for record in entries(store.audit, scope, which, limit=limit)]

    print_rows(AUDIT_COLUMNS, [_described(record) for record in run_with_app(run)])


@app.command
@over_http("tenants:verify_chain")
def verify(*, head: str | None = None) -> int:
    """See whether an entry was changed or taken away since it was sealed; ends with 1 where one was.

    Parameters
    ----------
    head
        POSITION:HASH as an earlier run printed it, and was written down elsewhere: shows also whether the
        whole chain was made anew.
    """
    expected = None if head is None else chain_head(head)

    async def run(store: "IdentityStore") -> ChainReport:
        return await verify_chain(store.audit, expected=expected)

    report = at_store(run)
    print_record(
        {
            "is_whole": not report.fault,
            "entries": report.head.position,
            "head": f"{report.head.position}:{report.head.hash.hex()}",
            "erased": report.erased,
            "unsealed": report.unsealed,
        }
    )
    if report.fault:
        note(f"the audit is not whole: {report.fault}")
        return FAILED
    return OK


@app.command
@over_http("tenants:export_chain")
def export() -> None:
    """Write the sealed entries as JSON lines, in the order of the chain, with their hashes, salts and commitments.

    A reader of the lines can verify them without this database.
    """

    async def run(store: "IdentityStore") -> None:
        async for record in _chain(store):
            write_json(exported(record))

    at_store(run)


async def _chain(store: "IdentityStore") -> AsyncIterator[AuditRecord]:
    after = 0
    while page := await store.audit.chain(after=after):
        for record in page:
            yield record
        after += len(page)


def _described(record: AuditRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "number": record.number,
        "at": record.at,
        **msgspec.structs.asdict(record.entry()),
        "position": record.position,
        "is_erased": record.is_erased,
    }
    if current_globals().output == "table":
        facts["at"] = when(record.at)
        facts["user"] = facts["user"] or record.user_id
        for name in ("before", "after"):
            facts[name] = "" if facts[name] is None else msgspec.json.encode(facts[name]).decode()
    return facts


def _instant(given: datetime | None) -> int | None:
    if given is None:
        return None
    return round((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
