"""What rules look at: rollups of the store, and queues, workers and schedules as they are now."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Alarming
from taskmq.contracts.history import RollupFilter, history_of
from taskmq.contracts.jobs import JobStore
from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.rollups import MINUTE, QUARTER, Rollup, minute_of, spans
from taskmq.model.history.samples import OF_ROLLUPS, WindowFigures, job_samples, queue_samples
from taskmq.model.topology import dead_letter_queue, jobs_queue
from taskmq.scheduler.alerts.unschedulable import unschedulable_jobs
from taskmq.scheduler.signals import LiveWorkers

__all__ = ["AlertFigures"]

# Tenants of one read.
_MOST_TENANTS: Final = 500
# Of one read: the loop, on which jobs are dispatched, waits for no more of them than that.
_TOGETHER: Final = 200


class _Window(NamedTuple):
    """What rules have in common whose figures are read together.

    Attributes:
        is_whole: of all tenants; else of the rules' tenants.
        is_exact: to the minute within the window; else quarters of an hour are read as one.
    """

    since: int
    is_whole: bool
    is_exact: bool


class AlertFigures:
    """The figures of one look, each read once, when the first rule asks for it.

    Args:
        rules: those that are looked at.
    """

    def __init__(
        self, app: TaskMQ, store: JobStore, workers: LiveWorkers, rules: Sequence[AlertRule], *, now: int
    ) -> None:
        self._app = app
        self._store = store
        self._workers = workers
        self._rules = [rule for rule in rules if rule.metric in OF_ROLLUPS]
        self._now = now
        self._windows: dict[_Window, dict[tuple[str, str], WindowFigures]] = {}
        self._queues: dict[str, dict[str, float]] = {}
        self._unschedulable: dict[tuple[str, str, str], int] | None = None

    async def samples(self, rule: AlertRule, known: Collection[str]) -> dict[str, float] | None:
        """A rule's figure by subject; None where it is not known yet.

        Raises:
            StoreUnavailable, BrokerUnavailable: it could not be read.
        """
        if rule.metric in OF_ROLLUPS:
            found: dict[str, float] = {}
            for number, (subject, value) in enumerate((await self._of_rule(rule)).samples(known), start=1):
                found[subject] = value
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
            return found
        if rule.metric == "schedules_late":
            return {"": await self._schedules_late()}
        if rule.metric == "broker_alarm":
            return await self._broker_alarm()
        if rule.metric == "unschedulable":
            if self._unschedulable is None:
                self._unschedulable = await unschedulable_jobs(self._app, self._store)
            return job_samples(rule, self._unschedulable)
        if rule.metric == "workers" and not self._workers.knows_all:
            return None
        if rule.metric not in self._queues:
            self._queues[rule.metric] = await self._of_queues(rule.metric)
        return queue_samples(rule, self._queues[rule.metric])

    async def _of_rule(self, rule: AlertRule) -> WindowFigures:
        window = self._window(rule)
        if window not in self._windows:
            self._windows[window] = await self._of_window(window)
        return self._windows[window][rule.tenant, rule.name]

    async def _of_window(self, window: "_Window") -> dict[tuple[str, str], WindowFigures]:
        """What the rules of a window come to, read once for all of them, some figures at a time."""
        found = {
            (rule.tenant, rule.name): WindowFigures(rule, self._now)
            for rule in self._rules
            if self._window(rule) == window
        }
        of_tenants: dict[str, list[WindowFigures]] = {}
        for (tenant, _), figures in found.items():
            of_tenants.setdefault(tenant, []).append(figures)
        for which in _reads(window, self._now + 1, sorted(of_tenants)):
            await self._add(which, of_tenants)
        return found

    async def _add(self, which: RollupFilter, of_tenants: Mapping[str, Sequence[WindowFigures]]) -> None:
        rollups = history_of(self._store).rollups
        page = await rollups.rollups(which, limit=_TOGETHER)
        while page:
            for tenant, part in groupby(sorted(page, key=_tenant), key=_tenant):
                own = list(part)
                for figures in of_tenants[tenant]:
                    for one in own:
                        figures.add(one)
                    await asyncio.sleep(0)
            if len(page) < _TOGETHER:
                break
            page = await rollups.rollups(which, after=page[-1].key, limit=_TOGETHER)

    def _window(self, rule: AlertRule) -> "_Window":
        since = minute_of(max(self._now - round(rule.window * 1000), 0))
        return _Window(since, is_whole=not rule.tenant, is_exact=rule.metric == "silence")

    async def _of_queues(self, metric: str) -> dict[str, float]:
        names = self._names()
        if metric == "workers":
            return {name: float(self._workers.count_of(name)) for name in names}
        if metric == "age":
            return await self._ages()
        physical = {
            part: name
            for name in names
            for part in (
                (dead_letter_queue(name),)
                if metric == "dead_letters"
                else (*self._app.producer.queue(name).physical, jobs_queue(name))
            )
        }
        found = dict.fromkeys(names, 0.0)
        for stats in await self._app.sessions.current().broker.stats(list(physical)):
            found[physical[stats.queue]] += stats.ready
        return found

    async def _ages(self) -> dict[str, float]:
        dispatching = self._store.dispatching
        found = dict.fromkeys(self._names(), 0.0)
        queues = {
            lane.queue for partition in range(dispatching.partitions) for lane in await dispatching.lanes(partition)
        }
        for lane, head in (await dispatching.heads(sorted(queues))).items():
            found[lane.queue] = max(found.get(lane.queue, 0.0), (self._now - head.due) / 1000)
        return found

    async def _schedules_late(self) -> float:
        late = 0
        for partition in range(self._store.dispatching.partitions):
            for due in await self._store.schedules.due(partition, until=self._now, limit=1):
                late = max(late, self._now - due.due)
        return late / 1000

    async def _broker_alarm(self) -> dict[str, float] | None:
        broker = self._app.sessions.current().broker
        if not isinstance(broker, Alarming):
            return None
        return {"": 0.0 if await broker.alarm() is None else 1.0}

    def _names(self) -> list[str]:
        """The queues that the app's tasks have, and those that live workers consume."""
        return sorted({*(queue.name for queue in self._app.tasks.queues), *self._workers.queues()})


def _tenant(one: Rollup) -> str:
    return one.key.tenant


def _reads(window: _Window, until: int, tenants: Sequence[str]) -> Iterator[RollupFilter]:
    """What is read of a window: each in the order in which the store has it, and none of tenants without a rule."""
    parts = [(window.since, until, MINUTE)] if window.is_exact else spans(window.since, until, QUARTER)
    for begin, end, step in parts:
        if window.is_whole:
            yield RollupFilter(since=begin, until=end, step=step, is_whole=True)
        elif step == QUARTER:
            for tenant in tenants:
                yield RollupFilter(since=begin, until=end, step=step, tenant=tenant)
        else:
            for first in range(0, len(tenants), _MOST_TENANTS):
                part = frozenset(tenants[first : first + _MOST_TENANTS])
                yield RollupFilter(since=begin, until=end, step=step, tenants=part)
