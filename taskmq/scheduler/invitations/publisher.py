"""Publication of invitations with confirms, and the handling of each result.

    claims are held by others          -> the job waits in the store, behind a gate
    the work of its key was done       -> a report of that success, which ends the job
    confirmed                          -> the batch is recorded as confirmed in the store
    Unroutable, PublishRejected        -> returned to the store without counting an attempt, and the queue pauses
    the same after a PublishUnknown    -> published again after the pause: a worker may have it
    TooLarge, EncodeError              -> failed: no worker can ever run it
    PublishUnknown, BrokerUnavailable,
    BrokerBlocked                      -> published again, with the same token, until the broker has it
    PublishUnknown, ack="early"        -> failed: a worker may have it, and it never runs twice
    a parcel is refused                -> published again at once, one message for each of its jobs

An unconfirmed batch is published again by the partition's next holder, after it has applied the reports that waited
for it. A job may thus be published twice with one token; the first report counts. A job that a worker has started, by
a report or the store, is not published again, withdrawn or failed here: it continues, and its report will arrive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from taskmq.client.session import Session
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, DispatchStore, JournalStore, Withdrawn
from taskmq.durable.service import pause, unless_set
from taskmq.errors import (
    BrokerBlocked,
    BrokerUnavailable,
    EncodeError,
    PublishUnknown,
    SendError,
    StoreUnavailable,
    TooLarge,
)
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import JSON
from taskmq.model.history.journals import SavedValues
from taskmq.model.jobs.reports import REPORTS_TASK, Report, encode_reports
from taskmq.scheduler.gates import GatePassage, answer_of
from taskmq.scheduler.invitations.messages import InvitationMessages, target_queue
from taskmq.scheduler.invitations.queues import InvitationQueues
from taskmq.scheduler.parcels import Packer
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.reports import ReportsQueue
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts

T = TypeVar("T")

_log = logging.getLogger("taskmq.scheduler")

_OUTAGES: Final = (BrokerUnavailable, BrokerBlocked, PublishUnknown)
_NEVER: Final = (TooLarge, EncodeError)
_UNKNOWN_RUN: Final = "its confirm was lost, so it is unknown whether it ran, and it runs at most once"
_DEAD_SCHEDULER: Final = "its scheduler died, so it is unknown whether it ran, and it runs at most once"
# Their saved values are in memory together.
_TOGETHER: Final = 20
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_QUEUE_PAUSE: Final = 1.0
_LONGEST_QUEUE_PAUSE: Final = 30.0
# After this time the watch for lost jobs decides whether a worker has a job that the broker refuses.
_IN_DOUBT: Final = 300.0
# A suspended scheduler may keep reports that the queue counted.
_CATCHING_UP: Final = 10.0


class InvitationPublisher:
    """Publisher of one partition's invitations.

    Args:
        workers: the workers that consume the queues.
        journals: has the values that earlier runs saved.
        lease: lease of the partition.
        reports: queue for the reports of its jobs.
        proofs: makes the proofs of its dispatches.
    """

    def __init__(
        self,
        session: Session,
        store: DispatchStore,
        state: PartitionState,
        workers: LiveWorkers,
        *,
        journals: JournalStore,
        lease: HeldLease,
        reports: ReportsQueue,
        proofs: InvitationProofs,
        counts: SchedulerCounts,
    ) -> None:
        self._session = session
        self._store = store
        self._state = state
        self._journals = journals
        self._lease = lease
        self._reports = reports
        self._proofs = proofs
        self._counts = counts
        self._passage = GatePassage(state.gates, state.claims, store, lease)
        self._packer = Packer(
            state.short_tasks, count_unpacking=workers.count_unpacking, is_plain=state.rules.is_plain
        )
        self._queues = InvitationQueues(session, state, reports)
        self._messages = InvitationMessages(proofs, reports.name, leaves_limits=state.rules.leaves_limits)
        self._is_stopping = asyncio.Event()

    def stop_trying(self) -> None:
        """Stop retrying: leave jobs that the broker does not accept at once to the partition's next holder."""
        self._is_stopping.set()

    async def publish(self, batch: DispatchBatch) -> None:
        """Publish a batch. Returns when every job is confirmed, running, or back in the store.

        If retrying was stopped before, the batch stays unconfirmed, and the next holder publishes it again.
        """
        await self._publish_all(batch, in_doubt=set())

    async def fail_left(self, batches: Sequence[DispatchBatch], *, has_caught_up: asyncio.Event) -> bool:
        """Fail jobs that an earlier holder may have published and that run at most once, unless they have begun.

        Returns False if it was stopped before.

        Args:
            batches: batches without a confirm.
            has_caught_up: set once the reports that waited for this holder are applied.
        """
        await unless_set(self._is_stopping, has_caught_up.wait(), timeout=_CATCHING_UP)
        waiting = self._waiting([job for batch in batches for job in batch.jobs])
        once = [job for job in waiting if self._state.rules.runs_once(job)]
        if self._is_stopping.is_set() or not await self.fail(once, reason=_DEAD_SCHEDULER):
            return False
        if count := len(waiting) - len(once):
            partition = self._lease.partition
            _log.warning("partition %d: %d jobs were not confirmed; publishing them again", partition, count)
        return True

    async def publish_again(self, batch: DispatchBatch) -> None:
        """Publish a batch that an earlier holder may have published; refused jobs may then be at workers."""
        await self._publish_all(batch, in_doubt={job.id for job in batch.jobs})

    async def fail(self, jobs: Sequence[DispatchedJob], *, reason: str) -> bool:
        """Fail these jobs instead of publishing them. Returns False if retrying was stopped before the store had it.

        Jobs that a worker has started continue.
        """
        partition, epoch = self._lease.partition, self._lease.epoch
        return await self._withdraw(jobs, lambda: self._store.fail(partition, epoch, jobs, reason=reason))

    async def _publish_all(self, batch: DispatchBatch, *, in_doubt: set[str]) -> None:
        claimed = await self._take_claims(self._waiting(batch.jobs))
        if claimed is None or (jobs := await self._take_starts(claimed, in_doubt)) is None:
            return
        in_hand, names = self._state.in_hand, {(job.id, job.token) for job in jobs}
        in_hand |= names
        try:
            for portion in _portions(jobs):
                if not await self._publish_portion(portion, in_doubt):
                    return
        finally:
            in_hand -= names
        self._state.ledger.confirm(batch.id)

    async def _publish_portion(self, jobs: Sequence[DispatchedJob], in_doubt: set[str]) -> bool:
        """Publish these jobs; return False if retrying was stopped before."""
        in_hand = self._state.in_hand
        pending = self._waiting(jobs)
        backoff, refusals = Backoff(_PAUSE, _LONGEST_PAUSE), Backoff(_QUEUE_PAUSE, _LONGEST_QUEUE_PAUSE)
        names: set[tuple[str, int]] = set()
        is_troubled = False
        until = None
        try:
            while pending:
                in_hand -= names
                names = {(job.id, job.token) for job in pending}
                in_hand |= names
                if (saved := await self._read_saved(pending)) is None:
                    return False
                pending, outage = await self._publish(pending, in_doubt, saved)
                if (outage is not None) is not is_troubled:
                    is_troubled = outage is not None
                    if is_troubled:
                        self._state.begin_outage()
                        _log.warning("broker unavailable, will republish %d jobs: %s", len(pending), outage)
                    else:
                        self._state.end_outage()
                if not pending:
                    break
                if outage is None:
                    now = asyncio.get_running_loop().time()
                    until = until or now + _IN_DOUBT
                    if now >= until:
                        break
                if await pause(self._is_stopping, (refusals if outage is None else backoff).next()):
                    return False
                pending = self._waiting(pending)
        finally:
            in_hand -= names
            if is_troubled:
                self._state.end_outage()
        return True

    async def _take_claims(self, jobs: Sequence[DispatchedJob]) -> Sequence[DispatchedJob] | None:
        """Return the jobs that hold their claims; None if the partition's next holder has to take them."""
        taken = await self._until_answered(
            lambda: self._passage.take_claims(jobs, now=asyncio.get_running_loop().time())
        )
        if taken is None:
            return None
        if taken.held is jobs:
            return jobs
        for job in taken.waiting:
            self._state.leave(job.id, job.token, seconds=0.0)
        answers = [
            answer_of(job, done, proof=self._proofs.prove(job.id, job.token, self._reports.name))
            for job, done in taken.done
        ]
        self._state.has_work.set()
        # Their cancellation was requested, or they are not dispatched any more.
        is_left = await self._undispatch(taken.left, "its cancellation was requested")
        return taken.held if is_left and await self._report(answers) else None

    async def _report(self, answers: Sequence[Report]) -> bool:
        """Report ends in place of workers. Returns False if retrying was stopped before the broker had all."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        for body in encode_reports(answers):
            message = Outgoing(queue=self._reports.name, body=body, content_type=JSON, job_id="", task=REPORTS_TASK)
            while (await self._session.publish_now([message]))[0] is not None:
                if await pause(self._is_stopping, backoff.next()):
                    return False
        return True

    async def _take_starts(
        self, jobs: Sequence[DispatchedJob], in_doubt: Collection[str]
    ) -> Sequence[DispatchedJob] | None:
        """Return the jobs that may start; None if that is left to the partition's next holder."""
        # If a lost answer moved a job behind a gate, its message is published in vain: the token is old.
        started = await self._until_answered(
            lambda: self._passage.take_starts(jobs, sure=in_doubt, now=asyncio.get_running_loop().time())
        )
        if started is not None and len(started) < len(jobs):
            starting = {job.id for job in started}
            for job in jobs:
                if job.id not in starting:
                    self._state.leave(job.id, job.token, seconds=0.0)
            self._state.has_work.set()
        return started

    def _waiting(self, jobs: Sequence[DispatchedJob]) -> list[DispatchedJob]:
        """Return the jobs still to publish: those that were not reported, given up or started meanwhile."""
        return [job for job in jobs if self._state.ledger.waits(job.id, job.token)]

    async def _read_saved(self, jobs: Sequence[DispatchedJob]) -> dict[str, SavedValues] | None:
        """Read the values that earlier runs saved; None if retrying was stopped before the store had answered."""
        begun = [job.id for job in jobs if job.due is None]
        return await self._until_answered(lambda: self._journals.values(begun)) if begun else {}

    async def _publish(
        self, jobs: Sequence[DispatchedJob], in_doubt: set[str], saved: Mapping[str, SavedValues]
    ) -> tuple[list[DispatchedJob], SendError | None]:
        """Publish once. Returns the jobs to publish again, and the outage that is the reason, if any.

        Args:
            in_doubt: jobs that the broker may have without a confirm; more may be added.
            saved: values that earlier runs saved.
        """
        errors = await self._send(jobs, in_doubt, saved)
        again: list[DispatchedJob] = []
        refused: dict[str, list[DispatchedJob]] = {}
        reasons: dict[str, SendError] = {}
        outage: SendError | None = None
        for job, error in zip(jobs, errors, strict=True):
            if error is None:
                # Its report may have been faster than the confirm.
                continue
            if isinstance(error, PublishUnknown):
                in_doubt.add(job.id)
            if isinstance(error, PublishUnknown) and self._state.rules.runs_once(job):
                again += [] if await self.fail([job], reason=_UNKNOWN_RUN) else [job]
            elif isinstance(error, _OUTAGES):
                again.append(job)
                outage = error
            elif isinstance(error, _NEVER):
                again += [] if await self.fail([job], reason=str(error)) else [job]
            else:
                refused.setdefault(target_queue(job), []).append(job)
                reasons[target_queue(job)] = error
        self._counts.published += errors.count(None)
        if self._state.pauses:
            taken = {target_queue(job) for job, error in zip(jobs, errors, strict=True) if error is None}
            for queue in taken - refused.keys():
                self._state.pauses.accept(queue)
        for queue, its in refused.items():
            self._queues.pause(queue, reasons[queue])
            again += [job for job in its if job.id in in_doubt]
            back = [job for job in its if job.id not in in_doubt]
            again += [] if await self._undispatch(back, str(reasons[queue])) else back
        return again, outage

    async def _send(
        self, jobs: Sequence[DispatchedJob], in_doubt: Collection[str], saved: Mapping[str, SavedValues]
    ) -> list[SendError | None]:
        """Publish once. Returns the outcome of each job."""
        failed: dict[str, SendError] = {}
        able = jobs
        if failures := await self._queues.declare({target_queue(job) for job in jobs}):
            failed = {job.id: failures[queue] for job in jobs if (queue := target_queue(job)) in failures}
            able = [job for job in jobs if job.id not in failed]
        messages = self._packer.pack(able, now=asyncio.get_running_loop().time(), alone={*in_doubt, *saved})
        outcomes = await self._publish_now(messages, saved)
        refused = [job for its in messages if len(its) > 1 for job in its if _is_refusal(outcomes[job.id])]
        if refused:
            for task in {job.task for job in refused}:
                self._state.short_tasks.record_return(task, now=asyncio.get_running_loop().time())
            _log.warning("publishing %d jobs singly, a parcel was refused: %s", len(refused), outcomes[refused[0].id])
            outcomes |= await self._publish_now([[job] for job in refused], saved)
        outcomes |= failed
        return [outcomes[job.id] for job in jobs]

    async def _publish_now(
        self, messages: Sequence[Sequence[DispatchedJob]], saved: Mapping[str, SavedValues]
    ) -> dict[str, SendError | None]:
        """Publish messages of one job or several. Returns the outcome of each job."""
        if not messages:
            return {}
        outgoing = [
            self._messages.invite(its[0], saved.get(its[0].id))
            if len(its) == 1
            else self._messages.pack(its, batch=self._batch_of(its[0]))
            for its in messages
        ]
        began = asyncio.get_running_loop().time()
        outcomes = await self._session.publish_all((), outgoing)
        if not any(outcomes):
            self._state.trips.record("publish", asyncio.get_running_loop().time() - began)
        return {job.id: outcome for its, outcome in zip(messages, outcomes, strict=True) for job in its}

    def _batch_of(self, job: DispatchedJob) -> int:
        flight = self._state.ledger.find(job.id, job.token)
        return 0 if flight is None else flight.batch

    async def _undispatch(self, jobs: Sequence[DispatchedJob], reason: str) -> bool:
        partition, epoch = self._lease.partition, self._lease.epoch
        return await self._withdraw(jobs, lambda: self._store.undispatch(partition, epoch, jobs, reason=reason))

    async def _withdraw(self, jobs: Sequence[DispatchedJob], withdraw: Callable[[], Awaitable[Withdrawn]]) -> bool:
        """Withdraw jobs in the store, retrying as long as needed; they stay in flight until then.

        Returns False if retrying was stopped before, or the lease was lost. The next holder then takes over their
        batch, so it must stay as it is in the store.
        """
        if not jobs:
            return True
        withdrawn = await self._until_answered(withdraw)
        if withdrawn is None:
            return False
        if withdrawn.is_fenced:
            self.stop_trying()
            return False
        for job in jobs:
            if job.id not in withdrawn.running:
                self._state.leave(job.id, job.token, seconds=0.0)
            elif self._state.ledger.waits(job.id, job.token):
                self._state.begin(job.id, now=asyncio.get_running_loop().time())
        self._state.has_work.set()
        return True

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat a call to the store until it answers. Returns None if retrying was stopped before."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                _log.debug("partition %d: publishing waits, store unavailable: %s", self._lease.partition, error)
                if await pause(self._is_stopping, backoff.next()):
                    return None


def _portions(jobs: Sequence[DispatchedJob]) -> Iterator[Sequence[DispatchedJob]]:
    """Divide the jobs: those that may have saved values, which may be large, are published a few at a time."""
    begun = [job for job in jobs if job.due is None]
    yield [job for job in jobs if job.due is not None] if begun else jobs
    for first in range(0, len(begun), _TOGETHER):
        yield begun[first : first + _TOGETHER]


def _is_refusal(error: SendError | None) -> bool:
    return error is not None and not isinstance(error, _OUTAGES)
