"""Invitations on their way to the broker: published with confirms, and what becomes of each.

    confirmed                          -> the batch is confirmed in the store
    Unroutable, PublishRejected        -> back to the store, the attempt is not counted, and the queue pauses
    TooLarge, EncodeError              -> failed: no worker can ever run it
    PublishUnknown, BrokerUnavailable,
    BrokerBlocked                      -> published again, with the same token, until the broker has it
    PublishUnknown, ack="early"        -> failed: a worker may have it, and it never runs twice

A batch that a holder of a slot did not get confirmed is published again by the next one. A job may so be published
twice under one token: the first report counts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, DispatchStore
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
from taskmq.model.envelope import JSON, Invitation
from taskmq.model.jobs.reports import invite
from taskmq.model.topology import ReportQueue, WorkQueue, jobs_queue, node_queue
from taskmq.scheduler.ledger import Ledger, public_name
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


class _QueuePause:
    """That a queue takes nothing for now."""

    def __init__(self) -> None:
        self.backoff = Backoff(_QUEUE_PAUSE, _LONGEST_QUEUE_PAUSE)
        self.until = 0.0
        self.reason = ""


class InvitationPublisher:
    """Publishes the invitations of one slot.

    Args:
        reports: the name of the slot's reports queue.
        queue: what a queue of that name is to be.
        runs_once: whether the jobs of a task must not run a second time.
        room: called when there may be room for jobs again: some have left, or a pause is over.
    """

    def __init__(
        self,
        session: Session,
        store: DispatchStore,
        ledger: Ledger,
        *,
        reports: str,
        queue: Callable[[str], WorkQueue],
        runs_once: Callable[[str], bool],
        counts: SchedulerCounts,
        room: Callable[[], None],
    ) -> None:
        self._session = session
        self._store = store
        self._ledger = ledger
        self._reports = reports
        self._queue = queue
        self._runs_once = runs_once
        self._counts = counts
        self._room = room
        self._letters: set[str] = set()
        self._pauses: dict[str, _QueuePause] = {}
        self._troubled = 0
        self._is_stopping = asyncio.Event()

    @property
    def is_troubled(self) -> bool:
        """Whether the broker does not take what is there already."""
        return self._troubled > 0

    def paused(self) -> dict[str, str]:
        """Why queues take nothing for now, by their names."""
        now = asyncio.get_running_loop().time()
        return {name: pause.reason for name, pause in self._pauses.items() if pause.until > now}

    def is_paused(self, queue: str) -> bool:
        """Whether the queue takes nothing for now; jobs that are placed go by those of their nodes."""
        found = self._pauses.get(queue)
        return found is not None and found.until > asyncio.get_running_loop().time()

    def stop_trying(self) -> None:
        """From now on leave to the slot's next holder what the broker does not take at once."""
        self._is_stopping.set()

    async def publish(self, batch: DispatchBatch) -> None:
        """Return once the broker has each of the batch's jobs, or the store has it again, or trying was stopped."""
        pending: Sequence[DispatchedJob] = batch.jobs
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        is_troubled = False
        try:
            while pending:
                pending, error = await self._publish(pending)
                if pending and not is_troubled:
                    is_troubled = True
                    self._troubled += 1
                    _log.warning("%d jobs are published again when the broker answers: %s", len(pending), error)
                if pending and await pause(self._is_stopping, backoff.next()):
                    return
        finally:
            if is_troubled:
                self._troubled -= 1
                self._room()
        self._ledger.confirmed(batch.id)

    async def fail(self, jobs: Sequence[DispatchedJob], *, reason: str) -> None:
        """End these instead of publishing them; return once the store has that, or trying was stopped."""
        await self._told(self._store.fail, jobs, reason)

    async def declare_reports(self, queues: Sequence[str] = ()) -> None:
        """Make sure that the reports queue is there, and gets what the broker drops of these queues' jobs.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: it exists with other properties.
        """
        letters = {jobs_queue(queue) for queue in queues}
        if letters and letters <= self._letters:
            return
        names = tuple(sorted(letters | self._letters))
        await self._session.broker.declare_reports([ReportQueue(self._reports, letters_of=names)])
        self._letters |= letters

    async def _publish(self, jobs: Sequence[DispatchedJob]) -> tuple[list[DispatchedJob], SendError | None]:
        """Try once; what has to be published again, and why."""
        errors = await self._send(jobs)
        again: list[DispatchedJob] = []
        refused: dict[str, list[DispatchedJob]] = {}
        reasons: dict[str, SendError] = {}
        outage: SendError | None = None
        for job, error in zip(jobs, errors, strict=True):
            if error is None:
                # Not there any more where its report was faster than the confirm.
                continue
            if isinstance(error, PublishUnknown) and self._runs_once(job.task):
                await self.fail([job], reason=_UNKNOWN_RUN)
            elif isinstance(error, _OUTAGES):
                again.append(job)
                outage = error
            elif isinstance(error, _NEVER):
                await self.fail([job], reason=str(error))
            else:
                refused.setdefault(_way(job), []).append(job)
                reasons[_way(job)] = error
        taken = {_way(job) for job, error in zip(jobs, errors, strict=True) if error is None}
        self._counts.published += errors.count(None)
        for queue in taken - refused.keys():
            self._pauses.pop(queue, None)
        for queue, its in refused.items():
            self._pause_queue(queue, reasons[queue])
            await self._told(self._store.undispatch, its, str(reasons[queue]))
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
                queue = self._queue(name)
                if not self._session.is_declared(queue):
                    await self._session.declare([queue])
                await self.declare_reports([name])
            except BrokerUnavailable as error:
                return dict.fromkeys(names, error)
            except QueueMissing as error:
                failures[name] = Unroutable(error.queue, *filter(None, [error.hint]))
            except (TopologyMismatch, InvalidOption, UnsupportedFeature) as error:
                failures[name] = Unroutable(name, str(error))
        return failures

    def _outgoing(self, job: DispatchedJob) -> Outgoing:
        invitation = Invitation(id=job.id, token=job.token, reports=self._reports)
        return Outgoing(
            queue=jobs_queue(_way(job)),
            body=invite(job.body, attempt=job.attempt, invitation=invitation),
            content_type=JSON,
            job_id=public_name(job),
            task=job.task,
        )

    def _pause_queue(self, queue: str, reason: SendError) -> None:
        found = self._pauses.setdefault(queue, _QueuePause())
        loop = asyncio.get_running_loop()
        if found.until > loop.time():
            # Batches that were under way when it began.
            return
        seconds = found.backoff.next()
        found.until, found.reason = loop.time() + seconds, str(reason)
        _log.warning("queue %s takes no jobs, next try in %g s: %s", queue, seconds, reason)
        loop.call_at(found.until, self._room)

    async def _told(self, tell: Callable[..., Awaitable[None]], jobs: Sequence[DispatchedJob], reason: str) -> None:
        """Write to the store what has become of jobs, however long that takes; they are in flight until then."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await tell(jobs, reason=reason)
                break
            except StoreUnavailable:
                if await pause(self._is_stopping, backoff.next()):
                    return
        for job in jobs:
            self._ledger.left(job.id, job.token, seconds=0.0)
        self._room()


def _way(job: DispatchedJob) -> str:
    """The queue that the job goes by: its own, or that of the node which it was placed on."""
    return node_queue(job.node) if job.node else job.queue
