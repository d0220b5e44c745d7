"""Schedules that start workflows.

Starting a workflow writes to the broker and the state, so it cannot be part of the store's transaction. Its
occurrence is first claimed in the store, with a lease. The claim is removed once the workflow is started; if the
lease expires, another scheduler starts the same workflow again, with the same id. Workflows are started in the
background, so other schedules do not wait for the broker.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.client.producer import AppServices
from taskmq.contracts.jobs import JobScheduleStore, ScheduleChange, StoredSchedule
from taskmq.durable.service import is_interruption
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable, TaskMQError
from taskmq.model.keys import scheduled_job_id
from taskmq.run.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.scheduler.status import SchedulerCounts
from taskmq.schedules.definition import StoredRule
from taskmq.schedules.occurrence import due_instant, priority_of
from taskmq.schedules.record import OccurrenceClaim, encode_record
from taskmq.schedules.store_records import record_of
from taskmq.schedules.target import KEEP_SECONDS, graph_for
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import complete, next_look
from taskmq.workflow.service import WorkflowService

__all__ = ["ScheduledWorkflows"]

_log = logging.getLogger("taskmq.scheduler")

_TRIES: Final = 20
_TOGETHER: Final = 16
_MOST: Final = 1_000
_GRACE: Final = 0.5


class ScheduledWorkflows:
    """Starts of claimed workflows, several at a time."""

    def __init__(self, app: TaskMQ, store: JobScheduleStore, counts: SchedulerCounts) -> None:
        self._app = app
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
                started = [claim for claim in claims if await self._start(row, rule, claim)]
                if started:
                    await self._complete(row, rule, started)
        except StoreUnavailable as error:
            _log.warning("schedule %s: store unavailable, will record its workflows later: %s", row.name, error)
        finally:
            self._under_way.difference_update(_key(row, claim) for claim in claims)

    async def _complete(self, row: StoredSchedule, rule: StoredRule, started: list[OccurrenceClaim]) -> None:
        """Remove the claims of started workflows from the store."""
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

    async def _start(self, row: StoredSchedule, rule: StoredRule, claim: OccurrenceClaim) -> bool:
        assert rule.workflow is not None
        app = self._app
        graph = graph_for(
            rule.workflow,
            name=row.name,
            meta={SCHEDULE_NAME: row.name, SCHEDULED_FOR: str(claim.instant)},
            priority=priority_of(claim, None),
            tenant=row.tenant,
        )
        services = AppServices(app.producer, app.jobs, app.tasks.dependencies)
        flow_id, tenant = scheduled_job_id(row.app, row.name, claim.instant, claim.run), row.tenant or None
        try:
            await WorkflowService(services).start(graph, flow_id=flow_id, keep=KEEP_SECONDS, tenant=tenant)
        except BaseException as error:
            # The app's middleware, which may raise anything.
            if is_interruption(error):
                raise
            is_known = issubclass(type(error), TaskMQError)
            _log.warning(
                "schedule %s: starting the workflow of %d failed, will retry: %s",
                row.name,
                claim.instant,
                error,
                exc_info=None if is_known else error,
            )
            return False
        return True


def _key(row: StoredSchedule, claim: OccurrenceClaim) -> tuple[int, int, str]:
    return row.id, claim.instant, claim.run
