"""Limits, timed by the server's clock: one script handles all demands of a run."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, cast

from taskmq.contracts.stores import Demand, LimitEntry, LimitUsage, PlaceDemand, RateDemand
from taskmq.errors import StateUnavailable
from taskmq_redis.keys import Keys
from taskmq_redis.link.call import Reply, Word
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script

_ENTER_LIMITS: Final = Script("limits/enter_limits")
_LEAVE_LIMITS: Final = Script("limits/leave_limits")
_LOOK_AT_LIMIT: Final = Script("limits/look_at_limit")
_RENEW_PLACES: Final = Script("limits/renew_places")
_WITHDRAW: Final = Script("limits/withdraw")


class RedisLimits:
    """A `taskmq.contracts.stores.LimitStore`."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        keys = [*chain.from_iterable(self._keys.limit(demand.key) for demand in demands)]
        arguments: list[Word] = [job_id, hold, _microseconds(seconds), _microseconds(patience)]
        for demand in demands:
            if isinstance(demand, RateDemand):
                arguments += ("strict" if demand.strict else "rate", repr(demand.interval * 1_000_000), demand.burst)
            else:
                arguments += ("places", demand.places, 0)
        granted, wait, which, *holds = _list(await self._server.run(_ENTER_LIMITS, keys, arguments))
        return LimitEntry(
            granted=granted == 1,
            wait=int(cast("bytes", wait)) / 1_000_000,
            key=demands[which - 1].key if isinstance(which, int) and which > 0 else "",
            holds=tuple(cast("bytes", one).decode(errors="replace") for one in holds),
        )

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        if not holds:
            return []
        keys = [self._keys.limit(demand.key)[3] for _, demand in holds]
        arguments: list[Word] = [_microseconds(seconds)]
        for hold, demand in holds:
            arguments += (hold, demand.places)
        reply = _list(await self._server.run(_RENEW_PLACES, keys, arguments))
        return [one == 1 for one in reply]

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        names = [*chain.from_iterable(self._keys.limit(key)[::3] for key in keys)]
        await self._server.run(_LEAVE_LIMITS, names, (hold, "" if held is None else _microseconds(held)))

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        names = [*chain.from_iterable(self._keys.limit(key)[1:3] for key in keys)]
        await self._server.run(_WITHDRAW, names, (job_id,))

    async def usage(self, key: str) -> LimitUsage:
        _, line, _, held = self._keys.limit(key)
        counts = _list(await self._server.run(_LOOK_AT_LIMIT, [line, held], ()))
        return LimitUsage(held=int(cast("int", counts[0])), waiting=int(cast("int", counts[1])))


def _list(reply: Reply) -> list[int | bytes]:
    if not isinstance(reply, list) or not all(isinstance(one, int | bytes) for one in reply):
        raise StateUnavailable(
            "the state's answer is not that of a limit: is the server Redis, and are its keys taskmq's (?prefix=)?",
            is_certain=False,
        )
    return cast("list[int | bytes]", reply)


def _microseconds(seconds: float) -> str:
    return f"{max(seconds, 0) * 1_000_000:.0f}"
