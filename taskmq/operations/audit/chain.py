"""The audit as operators read it: page by page, and as a chain that is whole or is not."""

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import msgspec

from taskmq.contracts.identity import AuditFilter, AuditStore
from taskmq.errors import InvalidOption
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditRecord, ChainLink, Scope, broken_link

__all__ = ["ChainReport", "chain_head", "entries", "exported", "verify_chain"]

_PAGE: Final = 500
# Entries get their time as their transactions begin, and are erased with those that were committed.
_AT_WORK_MS: Final = 600_000


class _Emptied(NamedTuple):
    """A part of an entry that is not there any more."""

    position: int
    at: int
    person: str


class ChainReport(msgspec.Struct, frozen=True):
    """What became of looking through the chain.

    Attributes:
        head: how far it is whole.
        fault: what is wrong behind that; "" where nothing is.
        erased: entries of which a person's data were erased; the chain is whole all the same.
        unsealed: entries that are not in the chain: seconds old, or no scheduler runs.
    """

    head: ChainLink
    fault: str
    erased: int
    unsealed: int


async def entries(
    store: AuditStore, scope: Scope, which: AuditFilter, *, limit: int | None = None
) -> AsyncIterator[AuditRecord]:
    """Up to `limit` entries, or all, the last one first."""
    after: int | None = None
    while limit is None or limit > 0:
        page = await store.entries(scope, which, after=after, limit=_PAGE if limit is None else min(limit, _PAGE))
        for record in page.entries:
            yield record
        limit = None if limit is None else limit - len(page.entries)
        if (after := page.after) is None:
            return


async def verify_chain(store: AuditStore, *, expected: ChainLink | None = None) -> ChainReport:
    """Look through the whole chain.

    Args:
        expected: a link that was written down elsewhere: the chain has to have it. Without one, a person who may
            change every row of the database may have made another chain.
    """
    # Before the others, of which there may be more in a moment.
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
            emptied += _emptied(record)
            if expected is not None and head.position == expected.position and head != expected:
                fault = f"position {head.position} has another hash than was written down"
                break
    if not fault and expected is not None and head.position < expected.position:
        fault = f"the chain ends at position {head.position}, before the one that was written down"
    if not fault and head.position < last.position:
        fault = (
            f"position {head.position + 1} is missing: the last seal is that of position {last.position}, and no "
            "entry is there"
        )
    if not fault and emptied:
        fault = _unexplained(emptied, await _erasures(store))
    return ChainReport(head, fault, erased, await store.unsealed())


def _emptied(record: AuditRecord) -> list["_Emptied"]:
    """Its parts that are not there any more, each with whose erasure would take it away."""
    assert record.position is not None
    parts = ((record.who, record.user_id), (record.what, record.subject if record.kind == "user" else ""))
    return [_Emptied(record.position, record.at, person) for part, person in parts if part is None]


async def _erasures(store: AuditStore) -> dict[str, int]:
    """Return the last erasure of each person in ms, sealed or not."""
    found: dict[str, int] = {}
    async for record in entries(store, EVERYTHING_OF_ALL, AuditFilter(action="user.erase", kind="user")):
        found.setdefault(record.subject, record.at)
    return found


def _unexplained(emptied: list["_Emptied"], erasures: dict[str, int]) -> str:
    """Describe emptied parts that no erasure explains; "" if there are none."""
    # Of a person who comes back under the same id, what was written since stays.
    left = [one for one in emptied if one.at > erasures.get(one.person, -_AT_WORK_MS - 1) + _AT_WORK_MS]
    if not left:
        return ""
    return (
        f"{len(left)} parts of entries were emptied by no erasure of a user, the first at position {left[0].position}"
    )


def exported(record: AuditRecord) -> dict[str, Any]:
    """A record as JSON has it: a reader can verify the chain of them without the database."""
    facts: dict[str, Any] = msgspec.structs.asdict(record)
    for name, value in facts.items():
        if isinstance(value, bytes):
            facts[name] = value.decode() if name in ("who", "what") else value.hex()
    return facts


def chain_head(text: str) -> ChainLink:
    """A link as it was written down: `POSITION:HASH`.

    Raises:
        InvalidOption: it cannot be read.
    """
    position, _, digest = text.partition(":")
    try:
        return ChainLink(int(position), bytes.fromhex(digest))
    except ValueError as error:
        raise InvalidOption(f"{text[:100]!r} is no head of the chain: it looks like 1234:9f86d0...") from error
