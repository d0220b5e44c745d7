"""Watch over jobs in flight: repeats cancel requests, and recovers lost jobs.

Cancelling a job that a worker has is a request. It is kept in the job's row and sent to the workers every 5 s until
the job is reported, so a worker that missed it once receives it later.

A job is lost only if no worker can have it, in two checks in a row:

    dispatched, not started  for 5 minutes, the queue's invitations are empty, no worker
                             reports that it holds any of them, and the job is not
                             being published                                         -> dispatched again
    running                  its worker has been absent for a minute, and the queue has no invitations, neither ready
                             nor unacknowledged                                       -> published again
    running, detached        its worker has not reported for a minute that it is alive; or
                             the worker is absent for 25 s, or has ended             -> published again
                             never heard by this scheduler, in any way: after 25 s    -> published again
    either, placed           its node is lost                                         -> the next attempt, or failed
    either, ack="early"      it may have run                                          -> failed, and never run again

Each case also needs the partition's reports: those published before the check that found it have to be applied. While
reports keep coming, a later check finds that they are.

A job that is published again keeps its token, so the end that is reported first is the accepted one. An absent worker
counts as a crash of the job; a worker that announced its end, or that is cut off for a moment, does not. After
`--max-crashes` crashes a worker reports the job as failed.

RabbitMQ redelivers an unacknowledged message to another worker, which returns it (`reports.returned_jobs`).

If a worker starts a job at the moment it is declared lost, the job continues: the store compares its state.

A job whose report never arrived here is removed from the ledger if the store says twice in a row that it is not in
flight. An earlier holder of the partition was suspended, and applied the report after the take-over.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker_abilities import Broadcasting, Counting
from taskmq.contracts.jobs import DispatchedJob, HistoryEntry, JobRecord, JobStore, ReturnedJob, Withdrawn
from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable, StoreUnavailable
from taskmq.model.commands import REVOKE, Command, command_topic, encode_command
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.model.topology import jobs_queue, parcels_queue
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.reports import WORKER_LOST, ReportConsumer, ReturnedJobs, worker_lost
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts
from taskmq.stored_jobs.new_jobs import name_of

_log = logging.getLogger("taskmq.scheduler")

LOST_AFTER: Final = 300.0
_ABSENT: Final = 60.0
# Workers beat every ten seconds: two beats are missing.
_DEAD: Final = 25.0
_PERIOD: Final = 5.0
# The broker's counts may be some seconds old, so two checks have to be this far apart.
_CHECKS_BETWEEN: Final = 3
_DEATHS: Final = 3
_EVER: Final = 2**63 - 1
_CANCELLED: Final = "cancelled"


class InFlightWatch:
    """A service that watches the jobs of one partition in flight.

    Args:
        lease: lease of the partition.
        reports: consumer of the partition's reports; a job is lost only if all of them were applied.
        returned: publishes jobs again.
        placer: finds jobs on lost nodes.
        seconds: time after which a job may be lost.
    """

    def __init__(
        self,
        session: Session,
        store: JobStore,
        state: PartitionState,
        workers: LiveWorkers,
        *,
        lease: HeldLease,
        reports: ReportConsumer,
        returned: ReturnedJobs,
        placer: Placer,
        counts: SchedulerCounts,
        seconds: float = LOST_AFTER,
    ) -> None:
        self._session = session
        self._store = store
        self._state = state
        self._ledger = state.ledger
        self._workers = workers
        self._lease = lease
        self._partition = lease.partition
        self._reports = reports
        self._returned = returned
        self._placer = placer
        self._counts = counts
        self._seconds = seconds
        # Jobs that may be lost, each with the mark of reports that have to be applied first.
        self._suspects: dict[tuple[str, int], int] = {}
        self._dead: dict[tuple[str, int], int] = {}
        # Jobs that the store did not have in flight at the last check, with their tokens.
        self._gone: set[tuple[str, int]] = set()
        self._has_checked_detached = False
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Check every 5 s until `stop`."""
        checks = 0
        while not await pause(self._is_stopping, _PERIOD):
            # The ledger includes jobs dispatched by an earlier holder.
            if not len(self._ledger):
                self._suspects.clear()
                self._dead.clear()
                self._gone.clear()
                continue
            checks += 1
            try:
                known = self._ledger.tokens()
                now = await self._store.now_ms()
                # Regardless of the clock: every job of the ledger is among them, or has left.
                records = await self._store.dispatching.in_flight(self._partition, dispatched_before=_EVER)
                self._remove_departed(known, records)
                self._repeat_cancels(records)
                await self._find_detached(records)
                await self._give_up_lost_nodes(records)
                await self._give_up_dead_workers(records)
                if checks % _CHECKS_BETWEEN == 0:
                    await self._find_lost(records, now)
            except (StoreUnavailable, BrokerUnavailable) as error:
                _log.debug("partition %d: checking the jobs in flight failed, will retry: %s", self._partition, error)

    def _remove_departed(self, known: Mapping[str, int], records: Sequence[JobRecord]) -> None:
        """Remove jobs from the ledger that the store did not have in flight in two checks in a row.

        The reports of jobs missing only in this check may still be in progress.
        """
        before, self._gone = self._gone, known.items() - {(record.id, record.token) for record in records}
        left = [job_id for job_id, token in before & self._gone if self._state.leave(job_id, token) is not None]
        if left:
            _log.info(
                "partition %d: %d jobs were reported to an earlier holder, no longer in flight",
                self._partition,
                len(left),
            )
            self._state.wake()

    def _repeat_cancels(self, records: Sequence[JobRecord]) -> None:
        broker = self._session.broker
        if not isinstance(broker, Broadcasting):
            return
        for record in records:
            if (reason := record.cancel_requested) is not None:
                # With the reason, which a worker without a state cannot look up.
                command = Command(
                    id=secrets.token_hex(8), name=REVOKE, job_id=name_of(record), reason=reason or _CANCELLED
                )
                broker.announce(command_topic(REVOKE), encode_command(command))

    async def _find_detached(self, records: Sequence[JobRecord]) -> None:
        """Find which jobs of an earlier holder run without a message; those of this holder are reported."""
        if self._has_checked_detached:
            return
        for record in records:
            if record.state is not JobState.RUNNING or self._ledger.last_heard(record.id) is not None:
                continue
            if any(_is_detached(record, event) for event in await self._store.events(record.id)):
                now = asyncio.get_running_loop().time()
                self._ledger.detach(record.id, record.token, now=now, worker=record.worker)
        self._has_checked_detached = True

    async def _give_up_lost_nodes(self, records: Sequence[JobRecord]) -> None:
        lost = await self._placer.find_lost()
        for record in records:
            if record.id in lost and record.id in self._ledger:
                await self._give_up(record, is_elsewhere=True)

    async def _give_up_dead_workers(self, records: Sequence[JobRecord]) -> None:
        """Publish jobs again that run without a message at workers which are gone."""
        before, self._dead = self._dead, {}
        if not (dead := [record for record in records if self._is_dead(record)]):
            return
        mark = await self._reports.find_mark()
        for record in dead:
            key = record.id, record.token
            self._dead[key] = min(before.get(key, mark), mark)
            # Reports applied since may be signs of life.
            if self._dead[key] <= self._reports.applied and self._is_dead(record):
                await self._give_up(record)

    def _is_dead(self, record: JobRecord) -> bool:
        if record.state is not JobState.RUNNING or self._ledger.last_heard(record.id) is None:
            return False
        return self._has_left(record) or (self._is_absent(record) and self._is_silent(record))

    def _is_silent(self, record: JobRecord) -> bool:
        """Whether an absent worker is dead: it has sent heartbeats, or its job was not reported as alive here either.

        A worker that died before this scheduler listened was never heard here.
        """
        if self._workers.was_heard(record.worker, since=record.started):
            return True
        since = self._ledger.last_heard(record.id)
        if since is None or self._ledger.was_heard(record.id, record.worker):
            return False
        return asyncio.get_running_loop().time() - since >= _DEAD

    def _has_left(self, record: JobRecord) -> bool:
        return self._workers.has_left(record.worker, since=record.started)

    def _is_absent(self, record: JobRecord) -> bool:
        return self._workers.is_absent(record.worker, seconds=_DEAD, since=record.started)

    async def _find_lost(self, records: Sequence[JobRecord], now: int) -> None:
        before, self._suspects = self._suspects, {}
        if not (suspects := [record for record in records if self._may_be_lost(record, now)]):
            return
        empty = await self._find_empty_queues({self._state.placements.queue_of(record) for record in suspects})
        mark = await self._reports.find_mark()
        for record in suspects:
            # A job without a message is in no queue.
            has_message = self._ledger.last_heard(record.id) is None and not self._was_acknowledged(record)
            if has_message and not _has_no_holder(record, empty.get(self._state.placements.queue_of(record))):
                continue
            key = record.id, record.token
            # The second check in a row sets the mark.
            self._suspects[key] = min(before[key], mark) if key in before else _EVER
            if self._suspects[key] <= self._reports.applied and self._may_be_lost(record, now):
                await self._give_up(record)

    def _was_acknowledged(self, record: JobRecord) -> bool:
        """Whether the run began after its message was acknowledged, because it never takes place twice."""
        return record.state is JobState.RUNNING and self._runs_once(record)

    def _runs_once(self, record: JobRecord) -> bool:
        flight = self._ledger.find(record.id, record.token)
        return self._state.rules.runs_once(record) if flight is None else flight.runs_once

    def _may_be_lost(self, record: JobRecord, now: int) -> bool:
        if record.id not in self._ledger:
            return False
        if (heard := self._ledger.last_heard(record.id)) is not None:
            return asyncio.get_running_loop().time() - heard >= _ABSENT
        if record.state is JobState.RUNNING:
            return self._workers.is_absent(record.worker, seconds=_ABSENT, since=record.started)
        if (record.id, record.token) in self._state.in_hand:
            return False
        return now - (record.dispatched or now) >= self._seconds * 1000

    async def _find_empty_queues(self, queues: set[str]) -> dict[str, bool]:
        """Return the queues without any message, and whether the broker itself counts no unsettled ones."""
        broker = self._session.broker
        names = [name for queue in queues for name in (jobs_queue(queue), parcels_queue(queue))]
        stats = {each.queue: each for each in await broker.stats(names)}
        counted = await broker.count_unsettled() if isinstance(broker, Counting) else None
        found: dict[str, bool] = {}
        for queue in queues:
            parts = [stats[name] for name in (jobs_queue(queue), parcels_queue(queue)) if name in stats]
            if not parts:
                # It may be declared again soon, but nothing else would publish its jobs again.
                found[queue] = True
                continue
            unsettled = [
                counted.get(each.queue, 0) if each.unsettled is None and counted is not None else each.unsettled
                for each in parts
            ]
            if not any(each.ready for each in parts) and not any(unsettled) and not self._workers.have_in_hand(queue):
                found[queue] = None not in unsettled
        return found

    async def _give_up(self, record: JobRecord, *, is_elsewhere: bool = False) -> None:
        """Let a job run again that no worker has; `is_elsewhere`: where its message went, nothing runs any more."""
        dispatching, name = self._store.dispatching, name_of(record)
        partition, epoch, jobs = self._lease.partition, self._lease.epoch, [_as_dispatched(record)]
        withdrawn = Withdrawn()
        if self._runs_once(record):
            reason = "its worker died, so it is unknown whether it ran, and it runs at most once"
            _log.error("job %s (task %s) failed: %s", name, record.task, reason)
            is_running = record.state is JobState.RUNNING
            withdrawn = await dispatching.fail(partition, epoch, jobs, reason=reason, also_running=is_running)
        elif record.state is JobState.RUNNING and not is_elsewhere:
            if await self._returned.dispatch_again([self._as_returned(record)]):
                self._counts.lost += 1
                return
            if record.cancel_requested is None:
                # The partition may have another holder; if it has none, the next check asks again.
                return
            # The store ends what would run again.
            await dispatching.apply([Report(id=record.id, token=record.token, kind="interrupted")])
        elif record.state is JobState.RUNNING:
            _log.warning("job %s (task %s): its worker died; running it again", name, record.task)
            await dispatching.apply([await self._build_death_report(record)])
        else:
            _log.warning("job %s (task %s): its message is lost; dispatching it again", name, record.task)
            withdrawn = await dispatching.undispatch(partition, epoch, jobs, reason="its message was lost")
        if withdrawn.is_fenced:
            return
        if record.id in withdrawn.running:
            _log.warning("job %s (task %s): a worker has just started it; it continues", name, record.task)
            return
        self._counts.lost += 1
        self._state.leave(record.id, record.token)
        self._state.wake()

    def _as_returned(self, record: JobRecord) -> ReturnedJob:
        name, crashes = name_of(record), 0
        reason = f"worker {record.worker} no longer runs it; the job runs again"
        if self._is_absent(record) and not self._has_left(record):
            reason = f"worker {record.worker} died; the job runs again"
            crashes = 1 + self._crashes_before(record)
        _log.warning("job %s (task %s): %s", name, record.task, reason)
        return ReturnedJob(id=record.id, token=record.token, crashes=crashes, reason=reason)

    def _crashes_before(self, record: JobRecord) -> int:
        """Return 1 if the message came back from a worker that died before it had reported a start, else 0."""
        at = self._ledger.came_back(record.id)
        if at is None or asyncio.get_running_loop().time() - at < _DEAD:
            return 0
        self._ledger.settle_return(record.id)
        return int(self._workers.has_missed(record.queue, since=at))

    async def _build_death_report(self, record: JobRecord) -> Report:
        """Build the report that the dead worker cannot send: a failed attempt, the last one if it is the third."""
        errors = [each.error for each in await self._store.attempts(record.id)]
        deaths = sum(error is not None and error.type_name == WORKER_LOST for error in errors)
        return Report(
            id=record.id,
            token=record.token,
            attempt=record.attempt,
            kind="retry" if deaths + 1 < _DEATHS else "failed",
            worker=record.worker,
            started=record.started,
            by_scheduler=True,
            error=worker_lost(f"worker {record.worker} died"),
        )


def _has_no_holder(record: JobRecord, is_unsettled_known: bool | None) -> bool:  # noqa: FBT001 - one of three answers
    if is_unsettled_known is None:
        return False
    return record.state is not JobState.RUNNING or is_unsettled_known


def _is_detached(record: JobRecord, event: HistoryEntry) -> bool:
    # A detached report from another worker is outdated: the message was redelivered to this one.
    return event.kind == "detached" and event.by == record.worker and event.at >= (record.dispatched or 0)


def _as_dispatched(record: JobRecord) -> DispatchedJob:
    return DispatchedJob(
        id=record.id,
        key=record.key,
        tenant=record.tenant,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        attempt=record.attempt,
        token=record.token,
        expires=record.expires,
        body=b"",
    )
