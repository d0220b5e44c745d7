"""Figures of alert rules about runs of workflows, from the store."""

import asyncio
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore, StoredSchedule
from taskmq.errors import InvalidOption, StateUnavailable
from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.run_figures import RunFigures, run_samples
from taskmq.scheduler.firing.rules import RuleCache
from taskmq.schedules.occurrence import due_instant
from taskmq.schedules.store_records import record_of
from taskmq.schedules.target import name_of_runs
from taskmq.schedules.turn import LONGEST_RETRY_MS

# Workflows per read, so that dispatching on the same loop is not delayed.
_TOGETHER: Final = 100
_MOST_SCHEDULES: Final = 2_000


class RunAlertFigures:
    """Figures of runs in one evaluation, each read once, when the first rule needs it."""

    def __init__(self, app: TaskMQ, store: JobStore, *, now: int) -> None:
        self._store = store
        self._now = now
        self._rules = RuleCache(app)
        self._figures: dict[tuple[str | None, int], list[RunFigures]] = {}
        self._unstarted: list[RunFigures] | None = None

    async def samples(self, rule: AlertRule) -> dict[str, float]:
        """Return a rule's figure by subject.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        tenant = rule.tenant or None
        figures = await self._read(tenant, max(self._now - round(rule.window * 1000), 0))
        if rule.metric == "run_late":
            if self._unstarted is None:
                self._unstarted = await self._read_unstarted()
            figures = [*figures, *(each for each in self._unstarted if tenant in (None, each.tenant))]
        return run_samples(rule, figures, self._now)

    async def _read(self, tenant: str | None, since: int) -> list[RunFigures]:
        if (tenant, since) not in self._figures:
            found: list[RunFigures] = []
            page: list[RunFigures] | None = None
            while page is None or len(page) == _TOGETHER:
                after = (found[-1].tenant, found[-1].workflow) if found else None
                page = await self._store.runs.figures(tenant, since, after=after, limit=_TOGETHER)
                found += page
                await asyncio.sleep(0)
            self._figures[tenant, since] = found
        return self._figures[tenant, since]

    async def _read_unstarted(self) -> list[RunFigures]:
        """Return the occurrences of workflows that are due and not started."""
        schedules, found = self._store.schedules, list[RunFigures]()
        for partition in range(self._store.dispatching.partitions):
            # A refused start has the timer of its next attempt.
            until = self._now + LONGEST_RETRY_MS
            timers = await schedules.due(partition, until=until, limit=_MOST_SCHEDULES)
            for row in await schedules.load([timer.id for timer in timers]):
                found += self._unstarted_of(row)
            await asyncio.sleep(0)
        return found

    def _unstarted_of(self, row: StoredSchedule) -> list[RunFigures]:
        try:
            record, rule = record_of(row), self._rules.rule_of(row)
        except (InvalidOption, StateUnavailable):
            # The scheduler that fires it reports it.
            return []
        if rule.workflow is None:
            return []
        workflow = name_of_runs(rule.workflow, schedule=row.name)
        due = [due_instant(rule, claim) for claim in record.claims if not claim.run]
        if not due and row.next is not None:
            due.append(row.next)
        return [RunFigures(tenant=row.tenant, workflow=workflow, due=instant) for instant in due]
