"""Invitations on their way to the broker: published with confirms, and what becomes of each.

    confirmed                          -> the batch is confirmed in the store
    Unroutable, PublishRejected        -> back to the store, the attempt is not counted, and the queue pauses
    the same after a PublishUnknown    -> published again after the pause: a worker may have it
    TooLarge, EncodeError              -> failed: no worker can ever run it
    PublishUnknown, BrokerUnavailable,
    BrokerBlocked                      -> published again, with the same token, until the broker has it
    PublishUnknown, ack="early"        -> failed: a worker may have it, and it never runs twice

A batch that a holder of a partition did not get confirmed is published again by the next one. A job may so be
published twice under one token: the first report counts. One that a worker has started, as a report or the store
says, is not published again, taken back or failed here: it goes on, and its report will come.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, DispatchStore, Withdrawn
from taskmq.durable.service import pause
from taskmq.errors import (
    BrokerBlocked,
    BrokerUnavailable,
    EncodeError,
    InvalidOption,
    PublishUnknown,
    QueueMissing,
    SendError,
    StoreUnavailable,
    TooLarge,
    TopologyMismatch,
    Unroutable,
    UnsupportedFeature,
)
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import JSON, Invitation, submitted_at
from taskmq.model.headers import labels_of
from taskmq.model.jobs.reports import invite
from taskmq.model.topology import jobs_queue, node_queue
from taskmq.scheduler.partition import PartitionState, public_name
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.reports import ReportsQueue
from taskmq.scheduler.status import SchedulerCounts

__all__ = ["InvitationPublisher"]

_log = logging.getLogger("taskmq.scheduler")

_OUTAGES: Final = (BrokerUnavailable, BrokerBlocked, PublishUnknown)
_NEVER: Final = (TooLarge, EncodeError)
_UNKNOWN_RUN: Final = "it is unknown whether it was run: its confirm is lost, and ack='early' never runs a job twice"
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_QUEUE_PAUSE: Final = 1.0
_LONGEST_QUEUE_PAUSE: Final = 30.0
# After that whether a worker has a job which the broker refuses is found out by who looks for lost jobs.
_IN_DOUBT: Final = 300.0


class InvitationPublisher:
    """Publishes the invitations of one partition.

    Args:
        lease: of the partition.
        reports: the queue that the reports of its jobs come to.
        proofs: make the proof for a job's dispatch.
    """

    def __init__(
        self,
        session: Session,
        store: DispatchStore,
        state: PartitionState,
        *,
        lease: HeldLease,
        reports: ReportsQueue,
        proofs: InvitationProofs,
        counts: SchedulerCounts,
    ) -> None:
        self._session = session
        self._store = store
        self._state = state
        self._lease = lease
        self._reports = reports
        self._proofs = proofs
        self._counts = counts
        self._is_stopping = asyncio.Event()

    def stop_trying(self) -> None:
        """From now on leave to the partition's next holder what the broker does not take at once."""
        self._is_stopping.set()

    async def publish(self, batch: DispatchBatch) -> None:
        """Return once each of the batch's jobs is with the broker or a worker or in the store again.

        Or once trying was stopped; then the batch is not confirmed, and its next holder publishes it again.
        """
        await self._publish_all(batch, in_doubt=set())

    async def publish_again(self, batch: DispatchBatch) -> None:
        """`publish` what an earlier holder may have published: where the broker refuses it, workers may have it."""
        await self._publish_all(batch, in_doubt={job.id for job in batch.jobs})

    async def fail(self, jobs: Sequence[DispatchedJob], *, reason: str) -> bool:
        """End these instead of publishing them; False: trying was stopped before the store had that.

        Those that a worker has started go on.
        """
        partition, epoch = self._lease.partition, self._lease.epoch
        return await self._withdraw(jobs, lambda: self._store.fail(partition, epoch, jobs, reason=reason))

    async def _publish_all(self, batch: DispatchBatch, *, in_doubt: set[str]) -> None:
        in_hand = self._state.in_hand
        pending = self._waiting(batch.jobs)
        backoff, refusals = Backoff(_PAUSE, _LONGEST_PAUSE), Backoff(_QUEUE_PAUSE, _LONGEST_QUEUE_PAUSE)
        names: set[tuple[str, int]] = set()
        is_troubled = False
        until = None
        try:
            while pending:
                in_hand -= names
                names = {(job.id, job.token) for job in pending}
                in_hand |= names
                pending, outage = await self._publish(pending, in_doubt)
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
                    return
                pending = self._waiting(pending)
        finally:
            in_hand -= names
            if is_troubled:
                self._state.end_outage()
        self._state.ledger.confirm(batch.id)

    def _waiting(self, jobs: Sequence[DispatchedJob]) -> list[DispatchedJob]:
        """Those that still are to be published: not reported, given up or started meanwhile."""
        return [job for job in jobs if self._state.ledger.waits(job.id, job.token)]

    async def _publish(
        self, jobs: Sequence[DispatchedJob], in_doubt: set[str]
    ) -> tuple[list[DispatchedJob], SendError | None]:
        """Try once; what has to be published again, and the outage that is a reason for it.

        Args:
            in_doubt: those that the broker may have, although it has not confirmed them; gets more of them.
        """
        errors = await self._send(jobs)
        again: list[DispatchedJob] = []
        refused: dict[str, list[DispatchedJob]] = {}
        reasons: dict[str, SendError] = {}
        outage: SendError | None = None
        for job, error in zip(jobs, errors, strict=True):
            if error is None:
                # Not there any more where its report was faster than the confirm.
                continue
            if isinstance(error, PublishUnknown):
                in_doubt.add(job.id)
            if isinstance(error, PublishUnknown) and self._state.rules.runs_once(job.task):
                again += [] if await self.fail([job], reason=_UNKNOWN_RUN) else [job]
            elif isinstance(error, _OUTAGES):
                again.append(job)
                outage = error
            elif isinstance(error, _NEVER):
                again += [] if await self.fail([job], reason=str(error)) else [job]
            else:
                refused.setdefault(_way(job), []).append(job)
                reasons[_way(job)] = error
        taken = {_way(job) for job, error in zip(jobs, errors, strict=True) if error is None}
        self._counts.published += errors.count(None)
        for queue in taken - refused.keys():
            self._state.pauses.accept(queue)
        for queue, its in refused.items():
            self._pause_queue(queue, reasons[queue])
            again += [job for job in its if job.id in in_doubt]
            back = [job for job in its if job.id not in in_doubt]
            again += [] if await self._undispatch(back, str(reasons[queue])) else back
        return again, outage

    async def _send(self, jobs: Sequence[DispatchedJob]) -> list[SendError | None]:
        failures = await self._declare({_way(job) for job in jobs})
        errors: list[SendError | None] = [failures.get(_way(job)) for job in jobs]
        places = [place for place, error in enumerate(errors) if error is None]
        if places:
            outcomes = await self._session.publish_now([self._outgoing(jobs[place]) for place in places])
            for place, outcome in zip(places, outcomes, strict=True):
                errors[place] = outcome
        return errors

    async def _declare(self, names: set[str]) -> dict[str, SendError]:
        """Declare what was not yet; why that could not be, by queue."""
        failures: dict[str, SendError] = {}
        for name in names:
            try:
                queue = self._state.rules.queue(name)
                if not self._session.is_declared(queue):
                    await self._session.declare([queue])
                await self._reports.declare([name])
            except BrokerUnavailable as error:
                return dict.fromkeys(names, error)
            except QueueMissing as error:
                failures[name] = Unroutable(error.queue, *filter(None, [error.hint]))
            except (TopologyMismatch, InvalidOption, UnsupportedFeature) as error:
                failures[name] = Unroutable(name, str(error))
        return failures

    def _outgoing(self, job: DispatchedJob) -> Outgoing:
        reports = self._reports.name
        proof = self._proofs.prove(job.id, job.token, reports)
        invitation = Invitation(
            id=job.id,
            token=job.token,
            reports=reports,
            proof=proof,
            outages=job.outages,
            crashes=job.crashes,
            due=job.due,
        )
        return Outgoing(
            queue=jobs_queue(_way(job)),
            body=invite(job.body, attempt=job.attempt, invitation=invitation),
            content_type=JSON,
            job_id=public_name(job),
            task=job.task,
            enqueued=submitted_at(job.id),
            headers=labels_of(job.tenant, job.priority, job.owner),
        )

    def _pause_queue(self, queue: str, reason: SendError) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._state.refuse(queue, str(reason), now=loop.time())
        if seconds is not None:
            _log.warning("queue %s takes no jobs, next try in %g s: %s", queue, seconds, reason)
            loop.call_later(seconds, self._state.has_work.set)

    async def _undispatch(self, jobs: Sequence[DispatchedJob], reason: str) -> bool:
        partition, epoch = self._lease.partition, self._lease.epoch
        return await self._withdraw(jobs, lambda: self._store.undispatch(partition, epoch, jobs, reason=reason))

    async def _withdraw(self, jobs: Sequence[DispatchedJob], withdraw: Callable[[], Awaitable[Withdrawn]]) -> bool:
        """Write to the store what has become of jobs, however long that takes; they are in flight until then.

        False: trying was stopped before, and the partition's next holder is to have their batch as one without a
        confirm.
        """
        if not jobs:
            return True
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        withdrawn: Withdrawn | None = None
        while withdrawn is None:
            try:
                withdrawn = await withdraw()
            except StoreUnavailable:
                if await pause(self._is_stopping, backoff.next()):
                    return False
        for job in jobs:
            if job.id not in withdrawn.running:
                self._state.leave(job.id, job.token, seconds=0.0)
            elif self._state.ledger.waits(job.id, job.token):
                self._state.begin(job.id, now=asyncio.get_running_loop().time())
        self._state.has_work.set()
        return True


def _way(job: DispatchedJob) -> str:
    """The queue that the job goes by: its own, or that of the node which it was placed on."""
    return node_queue(job.node) if job.node else job.queue
