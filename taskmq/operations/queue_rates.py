"""Rates at which jobs enter and leave queues, from the sampled depths and the counted runs."""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.history import QueueDepth, Remembering, RollupFilter
from taskmq.errors import TaskMQError
from taskmq.model.history.rollups import MINUTE, Rollup, minute_of

_MINUTES: Final = 5
_FEW: Final = 10
_SOON: Final = 3_600
# A rate that is smaller is an error of rounding.
_NO_RATE: Final = 1e-6


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


class MoreWorkers(NamedTuple):
    """Workers to add to a queue, and when its waiting jobs would have started.

    Attributes:
        workers: number of them.
        empty_in: seconds; None if the waiting jobs do not become fewer.
    """

    workers: int
    empty_in: float | None


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

    The number of workers is that of `plan_workers`.
    """
    if (
        rates is None
        or waiting < _FEW
        or waiting + running < rates.recent
        or (growth := round((rates.entered - rates.left) * 60)) < 1
    ):
        return ""
    text = f"grows by {growth:,} jobs a minute"
    plans = plan_workers(rates, waiting=waiting, running=running, workers=workers)
    return f"{text}: add {plans[0].workers:,} worker{'' if plans[0].workers == 1 else 's'}" if plans else text


def plan_workers(rates: QueueRates | None, *, waiting: int, running: int, workers: int) -> list[MoreWorkers]:
    """Return numbers of workers to add to a queue whose waiting jobs take over an hour, fewest first.

    With the first number as many jobs leave as enter, and with the last one the waiting jobs have started within an
    hour. Each new worker runs as many jobs as the present ones do; empty if they run none.
    """
    if rates is None or waiting < _FEW or not (rates.left and running and workers):
        return []
    if rates.entered > rates.left and waiting + running < rates.recent:
        # It has begun to shrink.
        return []
    goals = (rates.entered, rates.entered + waiting / _SOON)
    found = sorted({math.ceil(workers * (goal - rates.left) / rates.left) for goal in goals if goal > rates.left})
    return [MoreWorkers(more, _empty_in(rates, waiting, 1 + more / workers)) for more in found]


def _empty_in(rates: QueueRates, waiting: int, factor: float) -> float | None:
    spare = rates.left * factor - rates.entered
    return waiting / spare if spare > _NO_RATE else None
