"""Schedules that start runs of workflows.

An occurrence is first claimed in the transaction that fires its schedule, with a lease. The claim is removed once the
run is started; if the lease expires, another scheduler starts the same run again, with the same id. A start that is
refused is tried again after 10 s, then after twice the time, at last every five minutes. Runs are started in the
background, so other schedules do not wait for them.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobScheduleStore, NewInboxRow, RunFilter, ScheduleChange, StoredSchedule
from taskmq.durable.task_set import TaskSet
from taskmq.errors import RunNotFound, StoreUnavailable, TaskMQError
from taskmq.model.keys import run_id_of, scheduled_job_id, split_tenant_key, tenant_key
from taskmq.model.runs.records import RunState
from taskmq.model.units import milliseconds_in
from taskmq.scheduler.status import SchedulerCounts
from taskmq.schedules.definition import StoredRule
from taskmq.schedules.occurrence import due_instant, priority_of
from taskmq.schedules.record import OccurrenceClaim, ScheduleRecord, encode_record
from taskmq.schedules.store_records import record_of
from taskmq.schedules.target import SCHEDULE_LABEL, name_of_runs, run_of, with_priority
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import complete, next_look, postpone
from taskmq.workflow.runs.service import RunService

_log = logging.getLogger("taskmq.scheduler")

_TRIES: Final = 20
_TOGETHER: Final = 16
_MOST: Final = 1_000
_MOST_ACTIVE: Final = 100
_GRACE: Final = 0.5
# With the number of redrives: a repeated request is not stored again.
_CANCEL_ID: Final = "overlap"


class ScheduledWorkflows:
    """Starts of claimed workflows, several at a time."""

    def __init__(self, app: TaskMQ, store: JobScheduleStore, counts: SchedulerCounts) -> None:
        self._app = app
        self._runs = RunService(app.sessions)
        self._store = store
        self._counts = counts
        self._starting = TaskSet("starts workflows of schedules", failure="workflows are started again later")
        self._under_way: set[tuple[int, int, str]] = set()
        self._room = asyncio.Semaphore(_TOGETHER)

    @property
    def is_starting(self) -> bool:
        """Whether workflows are being started."""
        return bool(self._starting)

    def start(self, row: StoredSchedule, rule: StoredRule, claims: Sequence[OccurrenceClaim]) -> None:
        """Start the workflows of one schedule; those that fail or exceed the limit start after their lease."""
        new = [claim for claim in claims if _key(row, claim) not in self._under_way]
        if new and len(self._under_way) < _MOST:
            self._under_way.update(_key(row, claim) for claim in new)
            self._starting.start(self._start_all(row, rule, new))

    async def aclose(self) -> None:
        """Give current starts half a second to end; the rest start after their lease."""
        await self._starting.aclose(grace=_GRACE)

    async def _start_all(self, row: StoredSchedule, rule: StoredRule, claims: Sequence[OccurrenceClaim]) -> None:
        try:
            async with self._room:
                refused: dict[OccurrenceClaim, str] = {}
                started: list[OccurrenceClaim] = []
                for claim in claims:
                    if reason := await self._start(row, rule, claim):
                        refused[claim] = reason
                    else:
                        started.append(claim)
                await self._record(row, rule, started, refused)
        except StoreUnavailable as error:
            _log.warning("schedule %s: store unavailable, will record its workflows later: %s", row.name, error)
        finally:
            self._under_way.difference_update(_key(row, claim) for claim in claims)

    async def _record(
        self,
        row: StoredSchedule,
        rule: StoredRule,
        started: list[OccurrenceClaim],
        refused: Mapping[OccurrenceClaim, str],
    ) -> None:
        """Remove the claims of started workflows from the store, and postpone the refused ones."""
        now = self._app.sessions.clock.now_ms()
        for claim in started:
            self._counts.schedules.count_emitted(rule.task, claim.kind, late=(now - due_instant(rule, claim)) / 1000)
        for _ in range(_TRIES):
            rows = await self._store.load([row.id])
            if not rows:
                return
            record = record_of(rows[0])
            by_hand = record.history
            complete(record, started, at=now, jitter=jitter_of(rule.name, rule.policy.jitter))
            postpone(record, refused, now)
            record.history = by_hand
            change = ScheduleChange(
                app=row.app,
                name=row.name,
                before=rows[0],
                is_code=rows[0].is_code,
                definition=rows[0].definition,
                record=encode_record(record),
                next=next_look(record, rule, now),
            )
            if (await self._store.write([change]))[0]:
                return

    async def _start(self, row: StoredSchedule, rule: StoredRule, claim: OccurrenceClaim) -> str:
        """Start a workflow; return why its start was refused, "" if it was not.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        assert rule.workflow is not None
        ordered = {name for name, task in self._app.tasks.items() if task.order_key is not None}
        content = with_priority(rule.workflow, priority_of(claim, None), ordered=ordered)
        due = None if claim.run else due_instant(rule, claim)
        run = run_of(content, schedule=row.name, instant=claim.instant, due=due)
        try:
            await self._runs.start_run(run, run_id=_id_of(row, claim), tenant=row.tenant or None)
        except StoreUnavailable:
            raise
        except TaskMQError as error:
            # Once; the schedule shows the last reason.
            level = logging.DEBUG if claim.refusals else logging.WARNING
            _log.log(
                level,
                "schedule %s: starting the workflow of %d failed, will retry: %s",
                row.name,
                claim.instant,
                error,
            )
            return str(error) or type(error).__name__
        return ""

    async def find_active(self, row: StoredSchedule, rule: StoredRule, record: ScheduleRecord) -> list[str]:
        """Return the occurrences of a schedule whose runs have not ended, or are still to be started.

        Includes those whose runs had ended and were redriven.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        found = dict.fromkeys(_id_of(row, claim) for claim in record.claims)
        for one in record.active:
            try:
                run = await self._runs.find(tenant_key(row.tenant or None, one.job_id))
            except RunNotFound:
                continue
            if run.ended is None:
                found[one.job_id] = None
        assert rule.workflow is not None
        which = RunFilter(
            tenant=row.tenant,
            workflow=name_of_runs(rule.workflow, schedule=row.name),
            states=(RunState.QUEUED, RunState.RUNNING),
            labels={SCHEDULE_LABEL: split_tenant_key(row.name)[1]},
        )
        for run in (await self._runs.store.list_runs(which, limit=_MOST_ACTIVE)).runs:
            occurrence = scheduled_job_id(row.app, row.name, milliseconds_in(run.scheduled_for) or 0)
            # Others were started by hand or by a backfill.
            if run_id_of(tenant_key(row.tenant or None, occurrence)) == run.id:
                found[occurrence] = None
        return [*found]

    async def cancel(self, row: StoredSchedule, occurrences: Sequence[str], *, reason: str) -> None:
        """Cancel the runs of these occurrences.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        run_ids = [run_id_of(tenant_key(row.tenant or None, each)) for each in occurrences]
        for run_id in run_ids:
            if (run := await self._runs.store.get(run_id)) is not None:
                request = NewInboxRow(kind="cancel", id=f"{_CANCEL_ID}:{run.generation}", error=reason)
                await self._runs.store.send(run_id, request)
        self._runs.wake(run_ids)


def _id_of(row: StoredSchedule, claim: OccurrenceClaim) -> str:
    return scheduled_job_id(row.app, row.name, claim.instant, claim.run)


def _key(row: StoredSchedule, claim: OccurrenceClaim) -> tuple[int, int, str]:
    return row.id, claim.instant, claim.run
