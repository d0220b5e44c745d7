"""Records and definitions of schedules.

Records are spread over a few slots, so a few calls change many of them, and a Redis Cluster shares the work.
"""

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange
from taskmq_redis.keys import Keys
from taskmq_redis.link.pubsub import PubSub
from taskmq_redis.link.replies import flag, texts, texts_or_none
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_CHANGED_SCHEDULES: Final = Script("schedules/changed_schedules")
_DEFINE_SCHEDULE: Final = Script("schedules/define_schedule")
_SWAP_RECORDS: Final = Script("schedules/swap_records")
_TELL_SCHEDULES: Final = Script("schedules/tell_schedules")
_VERSION_LENGTH: Final = 16

_SPREAD: Final = 16
# Limit per script, which blocks the server while it runs.
_MOST: Final = 250


class RedisSchedules:
    """A `taskmq.contracts.stores.ScheduleStore`."""

    def __init__(self, server: Server, pubsub: PubSub, keys: Keys) -> None:
        self._server = server
        self._pubsub = pubsub
        self._keys = keys

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        found: list[KeptRecord | None] = [None] * len(names)

        async def read(part: list[int]) -> None:
            keys = [self._key(names[at]) for at in part]
            for at, kept in zip(part, texts_or_none(await self._server.ask("MGET", *keys, key=keys[0])), strict=True):
                found[at] = None if kept is None else _read(kept)

        await _all([read(part) for part in _parts(names)])
        return found

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        answers: list[KeptRecord | None] = [None] * len(changes)

        async def swap(part: list[int]) -> None:
            keys = [self._key(changes[at].name) for at in part]
            words: list[str | bytes | int] = [milliseconds(ttl)]
            for at in part:
                words += (changes[at].before, changes[at].after.version.encode() + changes[at].after.value)
            reply = texts_or_none(await self._server.run(_SWAP_RECORDS, keys, words))
            for at, kept in zip(part, reply, strict=True):
                answers[at] = None if kept is None else _read(kept) if kept else changes[at].after

        await _all([swap(part) for part in _parts([change.name for change in changes])])
        return answers

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        words = (name, _encode(before), _encode(after))
        return flag(await self._server.run(_DEFINE_SCHEDULE, self._keys.schedules(scope), words))

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        await self._server.run(_TELL_SCHEDULES, self._keys.schedules(scope), list(names))

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        reply = texts(await self._server.run(_CHANGED_SCHEDULES, self._keys.schedules(scope), (str(cursor), limit)))
        return [
            ChangedSchedule(name.decode(errors="replace"), int(at), definition[1:] if definition else None)
            for name, at, definition in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        return self._pubsub.listen(self._keys.schedules(scope)[1], lambda _: heard())

    def _key(self, name: str) -> str:
        return self._keys.schedule_record(_slot(name), name)


def _slot(name: str) -> int:
    return zlib.crc32(name.encode()) % _SPREAD


def _parts(names: Sequence[str]) -> list[list[int]]:
    """Group the indexes of the names by slot, in limited portions."""
    slots: list[list[int]] = [[] for _ in range(_SPREAD)]
    for at, name in enumerate(names):
        slots[_slot(name)].append(at)
    return [slot[start : start + _MOST] for slot in slots for start in range(0, len(slot), _MOST)]


async def _all(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all calls; raise the first error once all have ended."""
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if answer is not None:
            raise answer


def _read(kept: bytes) -> KeptRecord:
    return KeptRecord(kept[:_VERSION_LENGTH].decode(errors="replace"), kept[_VERSION_LENGTH:])


def _encode(definition: bytes | None) -> bytes:
    return b"" if definition is None else b"=" + definition
