"""The audit as operators read it: page by page, and as a chain that is whole or is not."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from taskmq.contracts.identity import AuditFilter, AuditStore
from taskmq.errors import InvalidOption
from taskmq.model.identity import AuditRecord, ChainLink, Scope, broken_link

__all__ = ["ChainReport", "chain_head", "entries", "exported", "verify_chain"]

_PAGE: Final = 500


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
    head, erased, fault = ChainLink(), 0, ""
    while not fault and (page := await store.chain(after=head.position, limit=_PAGE)):
        for record in page:
            if fault := broken_link(head, [record]):
                break
            assert record.hash is not None
            head = ChainLink(head.position + 1, record.hash)
            erased += record.is_erased
            if expected is not None and head.position == expected.position and head != expected:
                fault = f"position {head.position} has another hash than was written down"
                break
    if not fault and expected is not None and head.position < expected.position:
        fault = f"the chain ends at position {head.position}, before the one that was written down"
    return ChainReport(head, fault, erased, await store.unsealed())


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
