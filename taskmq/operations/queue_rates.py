"""Rates at which jobs enter and leave queues, from the sampled depths and the counted runs."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.history import QueueDepth, Remembering, RollupFilter
from taskmq.errors import TaskMQError
from taskmq.model.history.rollups import MINUTE, Rollup, minute_of

_MINUTES: Final = 5
_FEW: Final = 10


class QueueRates(msgspec.Struct, frozen=True):
    """Jobs a second that entered and left a queue in the last minutes.

    Attributes:
        left: by runs that ended, also those followed by another attempt.
        entered: those that left, and the growth of the queue.
        recent: the most jobs of the queue in its last two samples.
    """

    entered: float
    left: float
    recent: int = 0

    def seconds_until_empty(self, waiting: int) -> float | None:
        """Return the time until this many waiting jobs have started; None if the queue does not shrink."""
        return waiting / (self.left - self.entered) if self.left > self.entered else None


async def find_rates(app: TaskMQ) -> dict[str, QueueRates]:
    """Return the rates of the queues that a scheduler sampled; empty if there are no samples or no store."""
    store = app.sessions.current().store
    if not isinstance(store, Remembering):
        return {}
    try:
        until = minute_of(await store.now_ms())
        since = until - _MINUTES * MINUTE
        depths = await store.history.depths.depths(since=since, until=until + MINUTE, step=MINUTE)
        runs = await store.history.rollups.rollups(RollupFilter(since=since, until=until, is_whole=True))
    except TaskMQError:
        # Queues are listed without their rates.
        return {}
    return rates_of(depths, runs)


def rates_of(depths: Iterable[QueueDepth], runs: Iterable[Rollup]) -> dict[str, QueueRates]:
    """Return the rates between the first and the last sample of each queue; none for a queue with one sample.

    Args:
        depths: samples in the order of time.
        runs: figures of whole minutes.
    """
    samples: dict[str, list[QueueDepth]] = {}
    for depth in depths:
        samples.setdefault(depth.queue, []).append(depth)
    ended: dict[str, list[Rollup]] = {}
    for one in runs:
        ended.setdefault(one.key.queue, []).append(one)
    return {queue: _between(found, ended.get(queue, ())) for queue, found in samples.items() if len(found) > 1}


def _between(depths: Sequence[QueueDepth], runs: Sequence[Rollup]) -> QueueRates:
    first, last = depths[0], depths[-1]
    seconds = (last.at - first.at) / 1000
    left = sum(one.ended + one.outcomes.get("retried", 0) for one in runs if first.at <= one.key.minute < last.at)
    growth = _total(last) - _total(first)
    return QueueRates(max(left + growth, 0) / seconds, left / seconds, max(map(_total, depths[-2:])))


def _total(depth: QueueDepth) -> int:
    return depth.stored + depth.ready + depth.in_hand


def advise(rates: QueueRates | None, *, waiting: int, running: int, workers: int) -> str:
    """Return what to do about a queue that grows; "" if it does not grow, or has begun to shrink.

    The number of workers is that at which as many jobs leave as enter, if each new worker runs as many as the present
    ones do. It is only named if they run some.
    """
    if (
        rates is None
        or waiting < _FEW
        or waiting + running < rates.recent
        or (growth := round((rates.entered - rates.left) * 60)) < 1
    ):
        return ""
    text = f"grows by {growth:,} jobs a minute"
    if not (rates.left and running and workers):
        return text
    more = math.ceil(workers * (rates.entered - rates.left) / rates.left)
    return f"{text}: add {more:,} worker{'' if more == 1 else 's'}"
