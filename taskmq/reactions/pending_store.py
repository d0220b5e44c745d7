"""Reads and compare-and-set changes of the records of reactions in the state."""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from taskmq.contracts.stores import KeptRecord, RecordChange
from taskmq.errors import StateUnavailable
from taskmq.reactions.model.pending import PendingReaction

T = TypeVar("T")

_TTL: Final = 400 * 86_400.0
_PAUSE: Final = 0.05
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(PendingReaction)


class PendingRecords(Protocol):
    """Records of reactions, in the state or in the job store."""

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        """See `ScheduleStore.read`."""
        ...

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        """See `ScheduleStore.swap`."""
        ...


async def read_pending(store: PendingRecords, names: Sequence[str]) -> list[PendingReaction]:
    """Return the records of these names; missing ones are returned empty.

    Raises:
        StateUnavailable: the state could not be reached.
    """
    found = await store.read(names)
    return [_decode(kept, name) for name, kept in zip(names, found, strict=True)]


async def change_pending(
    store: PendingRecords, name: str, change: Callable[[PendingReaction], T]
) -> tuple[T, PendingReaction]:
    """Apply `change` to a record and store it. Returns the result of `change` and the record.

    `change` modifies the record in place. It is called again if another writer was faster.

    Raises:
        StateUnavailable: the state could not be reached; the record may or may not have changed.
    """
    (kept,) = await store.read([name])
    while True:
        pending = _decode(kept, name)
        answer = change(pending)
        value = _encode(pending)
        if kept is not None and kept.value == value:
            return answer, pending
        after = KeptRecord(uuid.uuid4().hex[:16], value)
        (there,) = await store.swap([RecordChange(name, "" if kept is None else kept.version, after)], ttl=_TTL)
        if there is not None and there.version == after.version:
            return answer, pending
        kept = there
        await asyncio.sleep(random.uniform(0, _PAUSE))


def _decode(kept: KeptRecord | None, name: str) -> PendingReaction:
    if kept is None:
        return PendingReaction()
    try:
        return _decoder.decode(kept.value)
    except msgspec.MsgspecError as error:
        raise StateUnavailable(
            f"cannot decode the record of reaction {name!r}, perhaps written by a newer taskmq: {error}"
        ) from error
