"""`taskmq audit`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.values import MOST_PER_PAGE
from taskmq.cli.administration.store import user_id_of
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.noun import Noun
from taskmq.cli.output import note, write_json
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.operations.audit import parse_chain_head

if TYPE_CHECKING:
    from taskmq.api.accounts import AuditEntryView

_FACTS: Final = ("is_whole", "entries", "head", "erased", "unsealed")

app = Noun(name="audit", help="Read and verify the audit log of administrators and operators.")

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
    """List audit entries, newest first.

    Args:
        action: Only actions that begin with this: user. selects all actions on users.
        user: Only actions of this user.
        kind: Only actions on this kind of thing: user, token, tenant, queue, job, ...
        subject: Only actions on this thing, by id or name; for a job also the caller's id, such as @acme:order-17.
        tenant: Only actions on things of this tenant.
        since: Only entries from this time on, such as 2027-01-31T08:00; UTC unless a zone is given.
        until: Only entries before this time.
        limit: Maximum number of entries.
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
                since=_parse_instant(since),
                until=_parse_instant(until),
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
    """Verify that no sealed entry was changed or removed. Exits with 1 if one was.

    Args:
        head: POSITION:HASH from an earlier run, stored elsewhere; also detects that the whole chain was rebuilt.
    """
    if head is not None:
        parse_chain_head(head)
    report = ask(lambda api: api.audit.verify(head=head or ""))
    show_record(report, lambda: {name: getattr(report, name) for name in _FACTS})
    if not report.is_whole:
        note(f"audit verification failed: {report.fault}")
        return FAILED
    return OK


@app.command
def export() -> None:
    """Write the sealed entries as JSON lines in chain order, with hashes, salts and commitments.

    The output can be verified without this database.
    """

    async def write(api: Api) -> None:
        after: int | None = 0
        while after is not None:
            page = await api.audit.chain(after=after)
            for entry in page.items:
                write_json(entry)
            after = page.next

    ask(write)


def _parse_instant(given: datetime | None) -> datetime | None:
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def _row(entry: "AuditEntryView") -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.structs.asdict(entry)
    facts["at"] = text_of_instant(entry.at)
    facts["user"] = entry.user or entry.user_id
    for name in ("before", "after"):
        facts[name] = "" if facts[name] is None else msgspec.json.encode(facts[name]).decode()
    return facts
