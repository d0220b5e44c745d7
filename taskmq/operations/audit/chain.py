"""The audit log as operators read it: lists its entries and verifies their hash chain."""

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import msgspec

from taskmq.contracts.identity import AuditFilter, AuditStore
from taskmq.errors import InvalidOption
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditRecord, ChainLink, Scope, broken_link

_PAGE: Final = 500
# An entry's time is the start of its transaction; an erasure empties only entries already committed.
_AT_WORK_MS: Final = 600_000


class _Emptied(NamedTuple):
    """A part of an entry that was emptied."""

    position: int
    at: int
    person: str


class ChainReport(msgspec.Struct, frozen=True):
    """Result of verifying the chain.

    Attributes:
        head: last link up to which the chain is intact.
        fault: the first fault after the head; "" if there is none.
        erased: number of entries from which personal data was erased. Erasure does not break the chain.
        unsealed: number of entries not yet in the chain: they are seconds old, or no scheduler runs.
    """

    head: ChainLink
    fault: str
    erased: int
    unsealed: int


async def entries(
    store: AuditStore, scope: Scope, which: AuditFilter, *, limit: int | None = None
) -> AsyncIterator[AuditRecord]:
    """Yield up to `limit` entries, or all, newest first."""
    after: int | None = None
    while limit is None or limit > 0:
        page = await store.entries(scope, which, after=after, limit=_PAGE if limit is None else min(limit, _PAGE))
        for record in page.entries:
            yield record
        limit = None if limit is None else limit - len(page.entries)
        if (after := page.after) is None:
            return


async def verify_chain(store: AuditStore, *, expected: ChainLink | None = None) -> ChainReport:
    """Verify the whole chain.

    Args:
        expected: a link recorded elsewhere, which the chain must contain. Without one, a person with write access
            to the database could have replaced the whole chain.
    """
    # Read first, because entries may be added while the chain is read.
    last = await store.head()
    head, erased, fault = ChainLink(), 0, ""
    emptied: list[_Emptied] = []
    while not fault and (page := await store.chain(after=head.position, limit=_PAGE)):
        for record in page:
            if fault := broken_link(head, [record]):
                break
            assert record.hash is not None
            head = ChainLink(head.position + 1, record.hash)
            erased += record.is_erased
            emptied += _find_emptied(record)
            if expected is not None and head.position == expected.position and head != expected:
                fault = f"position {head.position} has a different hash from the expected one"
                break
    if not fault and expected is not None and head.position < expected.position:
        fault = f"the chain ends at position {head.position}, before the expected position {expected.position}"
    if not fault and head.position < last.position:
        fault = (
            f"position {head.position + 1} is missing, although the chain was sealed up to position {last.position}"
        )
    if not fault and emptied:
        fault = _describe_unexplained(emptied, await _find_erasures(store))
    return ChainReport(head, fault, erased, await store.count_unsealed())


def _find_emptied(record: AuditRecord) -> list["_Emptied"]:
    """Return the emptied parts of an entry, each with the person whose erasure would explain it."""
    assert record.position is not None
    parts = ((record.who, record.user_id), (record.what, record.subject if record.kind == "user" else ""))
    return [_Emptied(record.position, record.at, person) for part, person in parts if part is None]


async def _find_erasures(store: AuditStore) -> dict[str, int]:
    """Return the time of each person's last erasure in ms, sealed or not."""
    found: dict[str, int] = {}
    async for record in entries(store, EVERYTHING_OF_ALL, AuditFilter(action="user.erase", kind="user")):
        found.setdefault(record.subject, record.at)
    return found


def _describe_unexplained(emptied: list["_Emptied"], erasures: dict[str, int]) -> str:
    """Describe emptied parts that no erasure explains; "" if there are none."""
    # Entries written after a person returned under the same id must not be empty.
    left = [one for one in emptied if one.at > erasures.get(one.person, -_AT_WORK_MS - 1) + _AT_WORK_MS]
    if not left:
        return ""
    return (
        f"{len(left)} parts of entries are empty although no user erasure explains it; the first is at position "
        f"{left[0].position}"
    )


def export_record(record: AuditRecord) -> dict[str, Any]:
    """Return a record as JSON values, from which a reader can verify the chain without the database."""
    facts: dict[str, Any] = msgspec.structs.asdict(record)
    for name, value in facts.items():
        if isinstance(value, bytes):
            facts[name] = value.decode() if name in ("who", "what") else value.hex()
    return facts


def parse_chain_head(text: str) -> ChainLink:
    """Parse a link in the form `POSITION:HASH`.

    Raises:
        InvalidOption: the text has another form.
    """
    position, _, digest = text.partition(":")
    try:
        return ChainLink(int(position), bytes.fromhex(digest))
    except ValueError as error:
        raise InvalidOption(f"{text[:100]!r} is not a chain head; expected a form like 1234:9f86d0...") from error
