"""`taskmq audit`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.api.values import MOST_PER_PAGE
from taskmq.cli.administration.store import user_id_of
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.output import note, write_json
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.operations.audit import parse_chain_head

if TYPE_CHECKING:
    from taskmq.api.accounts import AuditEntryView

__all__ = ["app"]

_FACTS: Final = ("is_whole", "entries", "head", "erased", "unsealed")

app = App(
    name="audit",
    help="What administrators and operators have done: list, verify, export.",
    result_action="return_value",
)

_COLUMNS: Final = ("at", "user", "action", "kind", "subject", "tenant", "address", "before", "after", "note")


@app.command(name="list")
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

    async def read(api: Api) -> "list[AuditEntryView]":
        user_id = "" if user is None else await user_id_of(api, user)
        found: list[AuditEntryView] = []
        after: int | None = None
        while len(found) < limit:
            page = await api.audit.page(
                action=action,
                user_id=user_id,
                kind=kind,
                subject=subject,
                since=_zoned(since),
                until=_zoned(until),
                after=after,
                limit=min(limit - len(found), MOST_PER_PAGE),
            )
            found += page.items
            after = page.next
            if after is None:
                break
        return found

    show_rows(_COLUMNS, ask(read, tenant=tenant), _row)


@app.command
def verify(*, head: str | None = None) -> int:
    """See whether an entry was changed or taken away since it was sealed; ends with 1 where one was.

    Parameters
    ----------
    head
        POSITION:HASH as an earlier run printed it, and was written down elsewhere: shows also whether the
        whole chain was made anew.
    """
    if head is not None:
        parse_chain_head(head)
    report = ask(lambda api: api.audit.verify(head=head or ""))
    show_record(report, lambda: {name: getattr(report, name) for name in _FACTS})
    if not report.is_whole:
        note(f"the audit is not whole: {report.fault}")
        return FAILED
    return OK


@app.command
def export() -> None:
    """Write the sealed entries as JSON lines, in the order of the chain, with their hashes, salts and commitments.

    A reader of the lines can verify them without this database.
    """

    async def write(api: Api) -> None:
        after: int | None = 0
        while after is not None:
            page = await api.audit.chain(after=after)
            for entry in page.items:
                write_json(entry)
            after = page.next

    ask(write)


def _zoned(given: datetime | None) -> datetime | None:
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def _row(entry: "AuditEntryView") -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.structs.asdict(entry)
    facts["at"] = text_of_instant(entry.at)
    facts["user"] = entry.user or entry.user_id
    for name in ("before", "after"):
        facts[name] = "" if facts[name] is None else msgspec.json.encode(facts[name]).decode()
    return facts
