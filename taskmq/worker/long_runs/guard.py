"""Runs that take longer than the broker leaves a delivery with a worker.

RabbitMQ takes a delivery back that was unsettled for too long (30 minutes by default), and up to 4.2 all others of
its channel with it: the job then runs a second time beside itself. So a run that comes near that time is handed over,
from the broker's care into that of a lease in the state:

    1 take     a lease on a new key
    2 publish  a copy of the message, its standby: same id, attempt and body, the key in a header, due when the
               lease may end; wait for its confirm
    3 ack      the delivery. From here on the standby answers for the job
    4 renew    the lease, while the run goes on
    5 done     the key says so for a week: the standby is dropped when it comes
      or given back: a fresh copy is published, and then the key says done

The worker that gets a standby looks at the key. While the lease is alive it puts the standby back until the lease may
end. When the run is done it drops the standby. When the lease has ended it marks the key as taken over, so that the
first holder cannot come back, and runs the job again, as one that may have ended its worker. A worker without a state
runs a standby as it is, so all workers of a queue have the same state, or none.

A job of the store needs none of that: its scheduler replaces its message (`detached_runs`).

Standbys wait at the broker, also with `delay="state"`: they must not be lost together with the leases. What only
waits for a slot is given back to the broker when it comes near the time. Nothing is handed over of an ordered queue,
whose next message must not start before; nor of tasks with early acknowledgement, whose message is gone already.

When the state does not answer (the broker's failures are in brackets):

    at 1  tried again until the time is nearly over; then all is as without a hand-over: the broker gives the job to
          another worker [at 2 the same; a standby whose confirm did not come is dropped when it comes]
    at 3  the state is not asked [a connection that is lost just before: the broker gives the job to another worker,
          as ever, and the standby is dropped]
    at 4  tried again. Once the lease has ended, its holder and a worker with the standby are equals: who reaches the
          state first has the job. The holder goes on running in any case: that is twice, if it is the other one
    at 5  tried again for as long as the worker lives, and for `_STOPPING` seconds when it stops. Ended without a
          word, the job runs a second time [the copy is not published: the standby runs when it comes]
    a standby comes: it is put back for one lease's time; so it is, without a question to the state, where its job
    runs
          [not published: it goes back to its queue after a pause]

The state lost its data: as if all leases had ended. A worker that dies at any point loses nothing: before 3 its
delivery comes back, after 3 the standby comes; between the confirm and the ack, both.
"""

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker import HANDED_OVER, Consumer, Delivery, Outgoing, TimeLimited, is_revoked
from taskmq.contracts.republish import copy_message
from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import EncodeError, MalformedMessage, SendError, StateUnavailable
from taskmq.model import headers as header
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import amend
from taskmq.model.keys import long_run_key
from taskmq.model.topology import is_jobs_queue, is_shard
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.slots import Slots
from taskmq.worker.long_runs.delivery_ages import DeliveryAges
from taskmq.worker.long_runs.detached_runs import DetachedRuns
from taskmq.worker.long_runs.leased_delivery import LeasedDelivery, RecoveredDelivery
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.settlement.reports import ReportSender

__all__ = ["LongRunGuard"]

_log = logging.getLogger("taskmq.worker")

"""Header: the key of the lease under which this message's job runs."""

_DONE: Final = "done"
_TAKEN_OVER: Final = "taken over"
_REMEMBERED: Final = 7 * 86_400.0
# Of the time that the broker allows: when it is too late to try.
_GIVE_UP: Final = 0.95
_LOOKS: Final = 20
_SHORTEST_LOOK: Final = 0.1
_LONGEST_LOOK: Final = 30.0
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_STOPPING: Final = 5.0


class LongRunGuard:
    """One worker's: a `Service`.

    Args:
        leases: None where there is no state: then jobs of the store alone are looked after.
        worker: shown as the owner of leases.
        seconds: how long a lease lasts that is not renewed; a job that was lost is run again that much later.
    """

    def __init__(
        self, app: TaskMQ, leases: LeaseStore | None, stats: WorkerStats, *, worker: str, seconds: float
    ) -> None:
        session = app.sessions.current()
        self._broker = session.broker
        self._send_timeout = session.send_timeout
        self._clock = app.sessions.clock
        self._asked_leases = leases
        self._stats = stats
        self._worker = worker
        self._seconds = seconds
        self._held: dict[str, _LongRun] = {}
        # Those whose job runs here, with its attempt: what is renewed.
        self._running: dict[_LongRun, Attempt] = {}
        self._keeper = LeaseKeeper("leases of long jobs", seconds=seconds, renew=self._renew)
        self._begun: set[Delivery] = set()
        self._tasks = TaskSet("worker hands over", failure="a job was not handed over")
        self._stopping = asyncio.Event()
        self._slots: Slots | None = None
        self._detached: DetachedRuns | None = None
        self._consumer: Consumer | None = None
        self._queues: Collection[str] = ()
        self._ages: DeliveryAges | None = None

    @property
    def _leases(self) -> LeaseStore:
        assert self._asked_leases is not None
        return self._asked_leases

    def is_over(self, queue: str) -> bool:
        """Whether the deliveries of a physical queue are looked after."""
        return not is_shard(queue) and (self._asked_leases is not None or is_jobs_queue(queue))

    def attach(self, consumer: Consumer, slots: Slots, reports: ReportSender, queues: Collection[str]) -> None:
        """Say whose deliveries are looked at, before `run`.

        Args:
            queues: the physical queues that are consumed.
        """
        self._slots = slots
        self._detached = DetachedRuns(reports, slots, self._stats)
        self._consumer = consumer
        self._queues = [queue for queue in queues if self.is_over(queue)]

    def stop(self) -> None:
        """See `Service`."""
        self._stopping.set()

    async def run(self) -> None:
        """Hand over what comes near its time, until `stop`; then wait a while for what has to be said."""
        try:
            await self._look_on()
        except asyncio.CancelledError:
            await self._close()
            raise
        # Not where it has failed: it starts again, and what was handed over keeps its leases meanwhile.
        await self._close()

    async def _close(self) -> None:
        if self._detached is not None:
            await self._detached.aclose(grace=_STOPPING)
        await self._tasks.aclose(grace=_STOPPING)
        await self._keeper.aclose()

    async def _look_on(self) -> None:
        consumer, slots = self._consumer, self._slots
        if slots is None or not isinstance(consumer, TimeLimited):
            await self._stopping.wait()
            return
        loop = asyncio.get_running_loop()
        # Not anew where it starts again: a delivery must not be thought younger than it is.
        ages = self._ages = self._ages or DeliveryAges(now=loop.time())
        while not self._stopping.is_set():
            # Asked each time: it may be another node, of another version.
            limits = {queue: consumer.settle_within(queue) for queue in self._queues}
            shortest = min((limit for limit in limits.values() if limit is not None), default=None)
            seconds = _LONGEST_LOOK if shortest is None else shortest / _LOOKS
            if not await pause(self._stopping, min(max(seconds, _SHORTEST_LOOK), _LONGEST_LOOK)):
                self._look(limits, slots, ages, now=loop.time())

    def _look(self, limits: Mapping[str, float | None], slots: Slots, ages: DeliveryAges, *, now: float) -> None:
        running = {attempt.delivery: attempt for attempt in self._stats.running if self._can_be_handed_over(attempt)}
        waiting = [delivery for delivery in slots.waiting_deliveries() if self.is_over(delivery.queue)]
        ages.look((*running, *waiting), now=now)
        self._begun &= running.keys()

        def left(delivery: Delivery, part: float) -> float:
            limit = limits.get(delivery.queue)
            return math.inf if limit is None else part * limit - ages.most(delivery, now=now)

        slots.give_back([delivery for delivery in waiting if left(delivery, HANDED_OVER) <= 0])
        for delivery, attempt in running.items():
            if delivery not in self._begun and left(delivery, HANDED_OVER) <= 0:
                self._begun.add(delivery)
                self._begin(attempt, delivery, until=now + left(delivery, _GIVE_UP))

    def _begin(self, attempt: Attempt, delivery: Delivery, *, until: float) -> None:
        if (invitation := attempt.envelope.store) is None:
            self._tasks.start(self._hand_over(attempt, delivery, until=until))
        elif self._detached is not None:
            self._tasks.start(self._detached.detach(attempt, delivery, invitation))

    def _can_be_handed_over(self, attempt: Attempt) -> bool:
        delivery = attempt.delivery
        return (
            attempt.task.plan.ack == "late"
            and not isinstance(delivery, LeasedDelivery)
            and self.is_over(delivery.queue)
            and not is_revoked(delivery)
        )

    async def _hand_over(self, attempt: Attempt, delivery: Delivery, *, until: float) -> None:
        hold = await self._publish_standby(attempt, delivery, until=until)
        if hold is None:
            return
        if attempt not in self._stats.running or attempt.delivery is not delivery or is_revoked(delivery):
            # It has ended meanwhile, or another worker has its message: the standby message is void.
            await self._say_done(hold)
            return
        handed = LeasedDelivery(delivery, lambda is_done: self._settle(hold, attempt, is_done=is_done))
        hold.handed = handed
        assert self._slots is not None
        self._slots.replace(delivery, handed)
        attempt.delivery = handed
        delivery.ack()
        _log.info(
            "job %s of task %s runs for so long that it was handed over to the state",
            attempt.job_id,
            attempt.envelope.task,
        )
        self._running[hold] = attempt
        self._keeper.watch()

    async def _publish_standby(self, attempt: Attempt, delivery: Delivery, *, until: float) -> "_LongRun | None":
        """The lease, once its standby message is at the broker; None where there is nothing to be done any more."""
        key = long_run_key(attempt.job_id, uuid.uuid4().hex)
        token: int | None = None
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while attempt in self._stats.running and not is_revoked(delivery):
            try:
                if token is None:
                    token = await self._take(key)
                elif not await self._leases.renew(key, token=token, seconds=self._seconds):
                    token = None
                    continue
                hold = self._held[key] = _LongRun(key, token)
                await self._publish(self._standby(attempt, delivery, key))
            except (StateUnavailable, SendError, MalformedMessage) as error:
                is_hopeless = isinstance(error, EncodeError | MalformedMessage)
                seconds = backoff.next()
                if is_hopeless or asyncio.get_running_loop().time() + seconds > until:
                    _log.warning(
                        "job %s of task %s may run twice: it takes longer than the broker allows, and could not be "
                        "handed over: %s",
                        attempt.job_id,
                        attempt.envelope.task,
                        error,
                    )
                    break
                await asyncio.sleep(seconds)
            else:
                return hold
        if (given_up := self._held.get(key)) is not None:
            # Its standby message may be there.
            await self._say_done(given_up)
        return None

    async def _take(self, key: str) -> int:
        taken = await self._leases.acquire(key, owner=self._worker, seconds=self._seconds)
        if isinstance(taken, Lease):
            # No other process knows the key: the answer to an earlier try was lost.
            return taken.token
        return taken

    def _standby(self, attempt: Attempt, delivery: Delivery, key: str) -> Outgoing:
        due = self._clock.now_ms() + round(self._seconds * 1000)
        changes = {"id": attempt.job_id, "eta": due}
        body = amend(delivery.body, delivery.content_type, changes)
        return copy_message(
            delivery,
            envelope=attempt.envelope,
            job_id=attempt.job_id,
            body=body,
            due=due,
            headers={header.LEASE: key},
            keeps=_keeps_all_but_the_lease,
        )

    async def _renew(self) -> bool:
        held = [(hold, attempt) for hold, attempt in self._running.items() if not hold.is_over]
        answers = await asyncio.gather(
            *(self._hold_on(hold, self._seconds) for hold, _ in held), return_exceptions=True
        )
        failure: BaseException | None = None
        for (hold, attempt), answer in zip(held, answers, strict=True):
            if isinstance(answer, BaseException):
                failure = answer
            elif not answer and self._running.pop(hold, None) is not None:
                assert hold.handed is not None
                hold.handed.revoked = True
                _log.warning(
                    "job %s of task %s runs twice: its lease ended while the state did not answer, and another "
                    "worker has taken it over",
                    attempt.job_id,
                    attempt.envelope.task,
                )
        if failure is not None:
            raise failure
        return bool(self._running)

    async def _hold_on(self, hold: "_LongRun", seconds: float, *, note: str | None = None) -> bool:
        """Renew the lease, or take it once more where it ended and is free; whether it is held.

        Raises:
            StateUnavailable: it is not known.
        """
        # One after the other: a renewal must not come behind the last word.
        async with hold.turn:
            if hold.is_over and note is None:
                return True
            hold.is_over = note is not None
            if await self._leases.renew(hold.key, token=hold.token, seconds=seconds, note=note):
                return True
            taken = await self._leases.acquire(hold.key, owner=self._worker, seconds=seconds, note=note or "")
            if isinstance(taken, Lease):
                return False
            hold.token = taken
            return True

    def _settle(self, hold: "_LongRun", attempt: Attempt, *, is_done: bool) -> None:
        self._running.pop(hold, None)
        assert hold.handed is not None
        if hold.handed.revoked:
            self._held.pop(hold.key, None)
        else:
            self._tasks.start(self._say_done(hold) if is_done else self._give_back(hold, attempt, hold.handed))

    async def _give_back(self, hold: "_LongRun", attempt: Attempt, handed: LeasedDelivery) -> None:
        """Have the job run by another worker, at once or as soon as its standby message comes."""
        try:
            body = amend(handed.body, handed.content_type, {"id": attempt.job_id})
            copy = copy_message(
                handed,
                envelope=attempt.envelope,
                job_id=attempt.job_id,
                body=body,
                keeps=_keeps_all_but_the_lease,
            )
            await self._publish(copy)
        except (SendError, MalformedMessage) as error:
            _log.warning("job %s runs again within %g s: %s", attempt.job_id, self._seconds, error)
            with contextlib.suppress(StateUnavailable):
                await self._leases.release(hold.key, token=hold.token)
            self._held.pop(hold.key, None)
        else:
            await self._say_done(hold)

    async def _say_done(self, hold: "_LongRun") -> None:
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                # Where another has taken it over, nothing is left to be said.
                await self._hold_on(hold, _REMEMBERED, note=_DONE)
                break
            except StateUnavailable as error:
                _log.warning("job may run twice, its lease %s is not marked as done yet: %s", hold.key, error)
                await asyncio.sleep(backoff.next())
        self._held.pop(hold.key, None)

    async def admits(self, attempt: Attempt) -> bool:
        """Whether a message is to be run; where it is a standby message that is not, it was settled."""
        standby = attempt.delivery
        key = standby.headers.get(header.LEASE)
        if self._asked_leases is None or not isinstance(key, str):
            return True
        left = self._seconds
        if key not in self._held:
            try:
                answer = await self._leases.acquire(key, owner=self._worker, seconds=_REMEMBERED, note=_TAKEN_OVER)
            except StateUnavailable as error:
                _log.warning("job %s is not run for now, another worker may be at it: %s", attempt.job_id, error)
            else:
                if not isinstance(answer, Lease):
                    self._recover(attempt, _LongRun(key, answer))
                    return True
                if answer.note == _TAKEN_OVER:
                    # The worker that has begun to run it has given it back, or is gone.
                    self._recover(attempt, _LongRun(key, answer.token))
                    return True
                if answer.note == _DONE:
                    standby.ack()
                    return False
                left = answer.left
        await self._put_back(attempt, standby, left)
        return False

    def _recover(self, attempt: Attempt, hold: "_LongRun") -> None:
        _log.warning(
            "job %s of task %s was lost by who ran it, and runs again", attempt.job_id, attempt.envelope.task
        )
        standby = attempt.delivery
        recovered = RecoveredDelivery(standby, lambda: self._tasks.start(self._say_done(hold)))
        if self._slots is not None:
            self._slots.replace(standby, recovered)
        attempt.delivery = recovered

    async def _put_back(self, attempt: Attempt, standby: Delivery, seconds: float) -> None:
        due = self._clock.now_ms() + round(min(seconds, self._seconds) * 1000)
        try:
            body = amend(standby.body, standby.content_type, {"eta": due})
            copy = copy_message(
                standby, envelope=attempt.envelope, job_id=attempt.job_id, body=body, due=due, keeps=_keeps_all
            )
            await self._publish(copy)
        except (SendError, MalformedMessage) as error:
            _log.warning("the standby message of job %s goes back to its queue: %s", attempt.job_id, error)
            await pause(self._stopping, _LONGEST_PAUSE)
            standby.requeue()
        else:
            standby.ack()

    async def _publish(self, message: Outgoing) -> None:
        # To the broker, whatever the app has delayed messages wait in.
        await self._broker.publish(message, timeout=self._send_timeout)


class _LongRun:
    """A lease that this worker has, and what runs under it."""

    __slots__ = ("handed", "is_over", "key", "token", "turn")

    def __init__(self, key: str, token: int) -> None:
        self.key = key
        self.token = token
        self.handed: LeasedDelivery | None = None
        self.turn = asyncio.Lock()
        self.is_over = False


def _keeps_all_but_the_lease(name: str) -> bool:
    return name != header.LEASE


def _keeps_all(name: str) -> bool:
    del name
    return True
