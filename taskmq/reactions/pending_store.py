"""The records of reactions in the state."""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from taskmq.contracts.stores import KeptRecord, RecordChange, ScheduleStore
from taskmq.errors import StateUnavailable
from taskmq.reactions.pending import Standing

__all__ = ["change_standing", "look_at_standings", "standing_name"]

T = TypeVar("T")

_TTL: Final = 400 * 86_400.0
_PAUSE: Final = 0.05
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Standing)


def standing_name(app: str, reaction: str) -> str:
    """Under which name a state keeps the record of an app's reaction, beside those of its schedules."""
    return f"{app}//{reaction}"


async def look_at_standings(store: ScheduleStore, names: Sequence[str]) -> list[Standing]:
    """The records of these names; empty ones where there are none.

    Raises:
        StateUnavailable: the state could not be reached.
    """
    found = await store.read(names)
    return [_decode(kept, name) for name, kept in zip(names, found, strict=True)]


async def change_standing(store: ScheduleStore, name: str, change: Callable[[Standing], T]) -> tuple[T, Standing]:
    """What `change` returns, called with the record, in which it changes something; and the record.

    Called again where somebody was faster.

    Raises:
        StateUnavailable: the state could not be reached; then it may have been changed all the same.
    """
    (kept,) = await store.read([name])
    while True:
        standing = _decode(kept, name)
        answer = change(standing)
        value = _encode(standing)
        if kept is not None and kept.value == value:
            return answer, standing
        after = KeptRecord(uuid.uuid4().hex[:16], value)
        (there,) = await store.swap([RecordChange(name, "" if kept is None else kept.version, after)], ttl=_TTL)
        if there is not None and there.version == after.version:
            return answer, standing
        kept = there
        await asyncio.sleep(random.uniform(0, _PAUSE))


def _decode(kept: KeptRecord | None, name: str) -> Standing:
    if kept is None:
        return Standing()
    try:
        return _decoder.decode(kept.value)
    except msgspec.MsgspecError as error:
        raise StateUnavailable(
            f"the record of reaction {name!r} cannot be read: {error}; was it written by a newer taskmq?"
        ) from error
