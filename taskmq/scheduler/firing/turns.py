"""Schedules of one partition: decided when they are due, and fired, many in one transaction."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import DueSchedule, JobStore, Lane, OccurrenceJob, ScheduleFiring, StoredSchedule
from taskmq.errors import (
    JobConflict,
    JobNotFound,
    OccurrenceConflict,
    StateUnavailable,
    StoreUnavailable,
    TaskMQError,
    TooLarge,
)
from taskmq.model.history.rollups import MISSED, Rollup, RollupKey, minute_of
from taskmq.model.keys import scheduled_job_id
from taskmq.scheduler.firing.due_loop import DueLoop, FiringPace, StoreClock
from taskmq.scheduler.firing.occurrences import job_of
from taskmq.scheduler.firing.rules import RuleCache
from taskmq.scheduler.firing.workflows import ScheduledWorkflows
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.status import SchedulerCounts
from taskmq.schedules.definition import StoredRule
from taskmq.schedules.occurrence import due_instant
from taskmq.schedules.record import PENDING_MS, ActiveRun, OccurrenceClaim, ScheduleRecord, encode_record
from taskmq.schedules.store_records import record_of
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import LONGEST_RETRY_MS, Replica, Turn, complete, next_look, put_off, take_turn

_log = logging.getLogger("taskmq.scheduler")

_BATCH: Final = 250
# Seconds between two firings of one partition.
_PACE: Final = 0.01
# Interval of checks while occurrences wait for earlier ones to end.
_ROOM_MS: Final = 1_000
_CANCELLED: Final = "a newer occurrence of its schedule is due"

_Occurrence = tuple[int, int, str]


class _Decided(msgspec.Struct, frozen=True):
    """A schedule and the decision about it.

    Attributes:
        given_up: instants whose jobs can never be submitted, and why.
    """

    rule: StoredRule
    firing: ScheduleFiring
    claims: list[OccurrenceClaim]
    given_up: list[tuple[int, str]]
    cancel: list[str]
    missed: int


class ScheduleTurns:
    """A service that fires the schedules of one partition.

    Args:
        on_ready: called with the lanes that got ready jobs.
    """

    def __init__(
        self,
        app: TaskMQ,
        store: JobStore,
        lease: HeldLease,
        clock: StoreClock,
        *,
        on_ready: Callable[[set[Lane]], None],
        counts: SchedulerCounts,
    ) -> None:
        self._app = app
        self._whole_store = store
        self._store = store.schedules
        self._lease = lease
        self._on_ready = on_ready
        self._counts = counts
        self._rules = RuleCache(app)
        self._workflows = ScheduledWorkflows(app, store.schedules, counts)
        self._clock = clock
        self._loop = DueLoop(
            f"partition {lease.partition}: schedules",
            clock=clock,
            pace=FiringPace(_PACE),
            due=self._due,
            fire=self.fire,
            batch=_BATCH,
        )

    def stop(self) -> None:
        """See `Service`."""
        self._loop.stop()

    async def run(self) -> None:
        """Fire due schedules until `stop`."""
        try:
            await self._loop.run()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give workflows that are being started half a second; the rest are started later."""
        await self._workflows.aclose()

    @property
    def is_starting(self) -> bool:
        """Whether workflows are being started."""
        return self._workflows.is_starting

    async def _due(self, until: int, limit: int) -> list[DueSchedule]:
        return await self._store.due(self._lease.partition, until=until, limit=limit)

    async def fire(self, batch: Sequence[DueSchedule]) -> None:
        """Fire the schedules that are due, in their current version.

        Raises:
            StoreUnavailable: the store could not be reached; either nothing or everything was written.
        """
        rows = await self._store.load([due.id for due in batch])
        now = self._clock.now_ms()
        # Schedules that changed since they were found may no longer be due.
        due = [row for row in rows if row.next is not None and row.next <= now]
        conflicts: frozenset[_Occurrence] = frozenset()
        while True:
            decided, broken = await self._decide(due, now, conflicts)
            firings = [*(one.firing for one in decided), *broken]
            try:
                taken = (
                    await self._store.fire(self._lease.partition, self._lease.epoch, firings)
                    if firings
                    else set[int]()
                )
            except OccurrenceConflict as error:
                # Decide again without the conflicting occurrences.
                conflicts |= error.occurrences
                continue
            break
        if taken is None:
            self._counts.refused += len(firings)
            _log.warning(
                "partition %d was lost: leaving %d schedules to its holder", self._lease.partition, len(firings)
            )
            return
        await self._announce([one for one in decided if one.firing.before.id in taken])

    async def _decide(
        self, rows: Sequence[StoredSchedule], now: int, conflicts: frozenset[_Occurrence]
    ) -> tuple[list[_Decided], list[ScheduleFiring]]:
        """Decide about each schedule. Also returns those that failed here, to be tried again later.

        Args:
            conflicts: occurrences whose ids belong to other jobs.
        """
        decided: list[_Decided] = []
        broken: list[ScheduleFiring] = []
        read: list[tuple[StoredSchedule, StoredRule, ScheduleRecord]] = []
        for row in rows:
            try:
                read.append((row, self._rules.rule_of(row), record_of(row)))
            except TaskMQError as error:
                broken.append(_build_retry(row, error, now))
        calls = [record for _, rule, record in read if rule.workflow is None]
        jobs = await self._store.alive([run.job_id for record in calls for run in record.active])
        for row, rule, record in read:
            # A job or run counts as active as long as it has not ended, whatever the record says.
            active = [run.job_id for run in record.active if run.job_id in jobs]
            if rule.workflow is not None:
                limits = rule.policy.overlap != "allow"
                active = await self._workflows.find_active(row, rule, record) if limits else []
            record.active = [ActiveRun(job_id, now + PENDING_MS) for job_id in active]
            try:
                decided.append(self._take_turn(row, rule, record, now, conflicts))
            except BaseException as error:  # noqa: BLE001 - the app's middleware, or its own trigger
                broken.append(_build_retry(row, error, now))
        return decided, broken

    def _take_turn(
        self,
        row: StoredSchedule,
        rule: StoredRule,
        record: ScheduleRecord,
        now: int,
        conflicts: frozenset[_Occurrence],
    ) -> _Decided:
        # Claims of the row belong to workflows, or to a beat that may have sent them.
        earlier = {(claim.instant, claim.run) for claim in record.claims}
        by_hand = record.history
        missed = record.counts.missed
        turn = take_turn(record, rule, now=now, replica=Replica(row.app, "scheduler", holds_back=True))
        occurrences, given_up = self._occurrences(
            row, rule, record, turn, earlier=earlier, now=now, conflicts=conflicts
        )
        if rule.workflow is None:
            complete(record, turn.claims, at=now, jitter=jitter_of(rule.name, rule.policy.jitter))
            # The store keeps the other runs.
            record.history = by_hand
        following = next_look(record, rule, now)
        cancel = turn.cancel
        if record.buffered and record.paused is None:
            following = min(now + _ROOM_MS, following or now + _ROOM_MS)
            if rule.policy.overlap == "cancel_other":
                # Repeated, in case a scheduler died before it cancelled them.
                cancel = [run.job_id for run in record.active]
        firing = ScheduleFiring(before=row, record=encode_record(record), next=following, occurrences=occurrences)
        return _Decided(rule, firing, turn.claims, given_up, cancel, record.counts.missed - missed)

    def _occurrences(
        self,
        row: StoredSchedule,
        rule: StoredRule,
        record: ScheduleRecord,
        turn: Turn,
        *,
        earlier: set[tuple[int, str]],
        now: int,
        conflicts: frozenset[_Occurrence],
    ) -> tuple[list[OccurrenceJob], list[tuple[int, str]]]:
        found: list[OccurrenceJob] = []
        given_up: list[tuple[int, str]] = []
        jobs: dict[str, str] = {}
        for claim in list(turn.claims):
            occurrence = scheduled_job_id(row.app, row.name, claim.instant, claim.run)
            job = None
            if rule.call is not None:
                keyed = (claim.instant, claim.run) in earlier
                try:
                    if (row.id, claim.instant, claim.run) in conflicts:
                        raise JobConflict(f"job {occurrence} exists with another task or other arguments")
                    job = job_of(self._app, rule, rule.call, claim, occurrence=occurrence, keyed=keyed, now=now)
                except (TooLarge, JobConflict) as error:
                    given_up.append((claim.instant, str(error)))
                    _give_up(record, turn, claim, occurrence)
                    continue
                jobs[occurrence] = job.id
            found.append(OccurrenceJob(instant=claim.instant, run=claim.run, kind=claim.kind, job=job))
        # Replace the ids by the store's.
        record.active = [ActiveRun(jobs.get(run.job_id, run.job_id), run.until) for run in record.active]
        return found, given_up

    async def _announce(self, done: Sequence[_Decided]) -> None:
        """Log, count and announce the fired schedules, after the transaction."""
        at = self._clock.now_ms()
        lanes: set[Lane] = set()
        for one in done:
            for instant, why in one.given_up:
                _log.error("schedule %s: giving up the occurrence of %d: %s", one.firing.before.name, instant, why)
                self._counts.schedules.count_failed(one.rule.task)
            if one.rule.workflow is not None:
                self._workflows.start(one.firing.before, one.rule, one.claims)
                continue
            for claim in one.claims:
                late = (at - due_instant(one.rule, claim)) / 1000
                self._counts.schedules.count_emitted(one.rule.task, claim.kind, late=late)
            made = (each.job for each in one.firing.occurrences)
            lanes |= {Lane(job.queue, job.priority, job.tenant) for job in made if job is not None}
        if lanes:
            self._on_ready(lanes)
        for one in done:
            await self._cancel(one)
        await self._count_missed(done, at)

    async def _count_missed(self, done: Sequence[_Decided], at: int) -> None:
        """Add missed and given-up occurrences to the task's figures by the minute, for alert rules."""
        found: dict[RollupKey, Rollup] = {}
        for one in done:
            if missed := one.missed + len(one.given_up):
                tenant = "" if one.rule.call is None else one.rule.call.tenant or ""
                key = RollupKey(minute_of(at), one.rule.task, one.rule.queue, tenant)
                found.setdefault(key, Rollup(key)).merge_outcomes(Rollup(key, {MISSED: missed}))
        if not found or not isinstance(self._whole_store, Remembering):
            return
        try:
            await self._whole_store.history.rollups.add(list(found.values()))
        except StoreUnavailable as error:
            _log.warning("store unavailable, missed occurrences of %d tasks are not counted: %s", len(found), error)

    async def _cancel(self, one: _Decided) -> None:
        if one.rule.workflow is not None:
            if one.cancel:
                await self._workflows.cancel(one.firing.before, one.cancel, reason=_CANCELLED)
            return
        for job_id in one.cancel:
            try:
                await self._app.jobs.acancel(job_id, note=_CANCELLED)
            except (JobConflict, JobNotFound):
                # It has ended.
                continue
            except (TaskMQError, StoreUnavailable) as error:
                _log.warning("job %s: cancelling failed, will retry: %s", job_id, error)


def _give_up(record: ScheduleRecord, turn: Turn, claim: OccurrenceClaim, occurrence: str) -> None:
    turn.claims.remove(claim)
    record.claims = [each for each in record.claims if (each.instant, each.run) != (claim.instant, claim.run)]
    record.active = [run for run in record.active if run.job_id != occurrence]
    record.counts.failed += 1


def _build_retry(row: StoredSchedule, error: BaseException, now: int) -> ScheduleFiring:
    """Build a firing that records the error only, to be retried later by any scheduler."""
    is_first, kept, again = True, row.record, now + LONGEST_RETRY_MS
    with suppress(StateUnavailable):
        record = record_of(row)
        again = put_off(record, f"{type(error).__name__}: {error}", now)
        is_first, kept = record.failures == 1, encode_record(record)
    details = None if issubclass(type(error), TaskMQError) else error
    # Logged once; the schedule shows the last reason.
    level = logging.ERROR if is_first else logging.DEBUG
    _log.log(level, "schedule %s: firing failed, will retry: %s", row.name, error, exc_info=details)
    return ScheduleFiring(before=row, record=kept, next=again)
