"""Figures for alert rules: rollups of the store, and the present queues, workers and schedules."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.broker_abilities import Alarming
from taskmq.contracts.history import RollupFilter, history_of
from taskmq.contracts.jobs import JobStore
from taskmq.model.history.alerts import OF_RUNS, AlertRule
from taskmq.model.history.rollups import MINUTE, QUARTER, Rollup, minute_of, spans
from taskmq.model.history.samples import OF_ROLLUPS, WindowFigures, job_samples, queue_samples
from taskmq.model.topology import dead_letter_queue, jobs_queue
from taskmq.operations.diagnosis.health import measure_schedule_delay
from taskmq.scheduler.alerts.run_figures import RunAlertFigures
from taskmq.scheduler.alerts.unschedulable import unschedulable_jobs
from taskmq.scheduler.signals import LiveWorkers

# Most tenants in one read.
_MOST_TENANTS: Final = 500
# Rows per read, so that dispatching on the same loop is not delayed.
_TOGETHER: Final = 200


class _Window(NamedTuple):
    """A time window shared by rules whose figures are read together.

    Attributes:
        is_whole: whether it covers all tenants, instead of the rules' tenants.
        is_exact: whether it is read by the minute; otherwise by quarters of an hour.
    """

    since: int
    is_whole: bool
    is_exact: bool


class AlertFigures:
    """The figures of one evaluation, each read once, when the first rule needs it.

    Args:
        rules: rules to evaluate.
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
        self._runs = RunAlertFigures(app, store, now=now)

    async def samples(self, rule: AlertRule, known: Collection[str]) -> dict[str, float] | None:
        """Return a rule's figure by subject; None if it is not known yet.

        Raises:
            StoreUnavailable, BrokerUnavailable: the figure could not be read.
        """
        if rule.metric in OF_ROLLUPS:
            found: dict[str, float] = {}
            for number, (subject, value) in enumerate((await self._figures_of_rule(rule)).samples(known), start=1):
                found[subject] = value
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
            return found
        if rule.metric in OF_RUNS:
            return await self._runs.samples(rule)
        if rule.metric == "schedules_late":
            return {"": await measure_schedule_delay(self._store, now=self._now)}
        if rule.metric == "broker_alarm":
            return await self._read_alarm()
        if rule.metric == "unschedulable":
            if self._unschedulable is None:
                self._unschedulable = await unschedulable_jobs(self._app, self._store)
            return job_samples(rule, self._unschedulable)
        if rule.metric == "workers" and not self._workers.knows_all:
            return None
        if rule.metric not in self._queues:
            self._queues[rule.metric] = await self._read_queues(rule.metric)
        return queue_samples(rule, self._queues[rule.metric])

    async def _figures_of_rule(self, rule: AlertRule) -> WindowFigures:
        window = self._window(rule)
        if window not in self._windows:
            self._windows[window] = await self._read_window(window)
        return self._windows[window][rule.tenant, rule.name]

    async def _read_window(self, window: "_Window") -> dict[tuple[str, str], WindowFigures]:
        """Compute the figures of all rules of a window, from one read in small pages."""
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

    async def _read_queues(self, metric: str) -> dict[str, float]:
        names = self._names()
        if metric == "workers":
            return {name: float(self._workers.count_of(name)) for name in names}
        if metric == "age":
            return await self._read_ages()
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

    async def _read_ages(self) -> dict[str, float]:
        dispatching = self._store.dispatching
        found = dict.fromkeys(self._names(), 0.0)
        queues = {
            lane.queue for partition in range(dispatching.partitions) for lane in await dispatching.lanes(partition)
        }
        for lane, head in (await dispatching.heads(sorted(queues))).items():
            found[lane.queue] = max(found.get(lane.queue, 0.0), (self._now - head.due) / 1000)
        return found

    async def _read_alarm(self) -> dict[str, float] | None:
        broker = self._app.sessions.current().broker
        if not isinstance(broker, Alarming):
            return None
        return {"": 0.0 if await broker.alarm() is None else 1.0}

    def _names(self) -> list[str]:
        """Return the queues of the app's tasks, and those that live workers consume."""
        return sorted({*(queue.name for queue in self._app.tasks.queues), *self._workers.queues()})


def _tenant(one: Rollup) -> str:
    return one.key.tenant


def _reads(window: _Window, until: int, tenants: Sequence[str]) -> Iterator[RollupFilter]:
    """Yield the reads of a window, in the store's order and without tenants that have no rule."""
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
