"""Guard of long runs: replaces deliveries that are about to exceed the broker's consumer timeout.

RabbitMQ takes back a delivery that was unsettled for too long (30 minutes by default), and up to 4.2 all others of
its channel: the job then runs twice at a time. So a run that approaches the timeout is transferred from the broker to
a lease in the state:

    1 acquire  a lease on a new key
    2 publish  a copy of the message, its standby: same id, attempt and body, the key in a header, due when the
               lease may expire; wait for its confirm
    3 ack      the delivery. From here on the standby is responsible for the job
    4 renew    the lease, while the run continues
    5 done     the key says so for a week: the standby is dropped when it arrives
      or returned: a fresh copy is published, and then the key says done

The worker that receives a standby reads the key. While the lease is alive it requeues the standby until the lease may
expire. If the run is done it drops the standby. If the lease expired, it marks the key as taken over, so that the
first holder cannot return, and runs the job again as one that may have crashed its worker. A worker without a state
runs a standby as it is, so all workers of a queue need the same state, or none.

A stored job needs none of that: its scheduler replaces its message (`detached_runs`).

Standbys wait at the broker, even with `delay="state"`: they must not be lost together with the leases. A delivery
that only waits for a slot is returned to the broker when it approaches the timeout. Deliveries of ordered queues are
never transferred, because the next message must not start before. Nor are deliveries of tasks with early
acknowledgement, whose message is gone already.

If the state does not answer (failures of the broker are in brackets):

    at 1  retried until the timeout is near; then the job is not transferred, and the broker redelivers it to
          another worker [the same at 2; a standby without a confirm is dropped when it arrives]
    at 3  the state is not needed [a connection lost just before: the broker redelivers the job to another worker,
          as usual, and the standby is dropped]
    at 4  retried. Once the lease has expired, its holder and a worker with the standby are equals: the first to
          reach the state gets the job. The holder continues in any case, so the job may run twice
    at 5  retried while the worker lives, and for `_STOPPING` seconds when it stops. Without a record of its end,
          the job runs a second time [the copy is not published: the standby runs when it arrives]
    a standby arrives: it is requeued for the duration of a lease; so it is, without a call to the state, if its
          job runs here [not published: it returns to its queue after a pause]

If the state lost its data, all leases count as expired. A worker that dies at any point loses nothing: before 3 its
delivery is redelivered, after 3 the standby arrives; between the confirm and the ack, both.
"""

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Consumer, Delivery, Outgoing
from taskmq.contracts.broker_abilities import HANDED_OVER, TimeLimited, is_revoked
from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import EncodeError, MalformedMessage, SendError, StateUnavailable
from taskmq.model import headers as header
from taskmq.model.backoff import Backoff
from taskmq.model.keys import long_run_key
from taskmq.model.topology import is_jobs_queue, is_shard
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.slots import Slots
from taskmq.worker.long_runs.delivery_ages import DeliveryAges
from taskmq.worker.long_runs.detached_runs import DetachedRuns
from taskmq.worker.long_runs.leased_delivery import LeasedDelivery, RecoveredDelivery
from taskmq.worker.long_runs.run_lease import RunLease
from taskmq.worker.long_runs.standbys import copy_without_lease, put_off, standby_of
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.settlement.reports import ReportSender

_log = logging.getLogger("taskmq.worker")

_DONE: Final = "done"
_TAKEN_OVER: Final = "taken over"
_REMEMBERED: Final = 7 * 86_400.0
# Fraction of the timeout after which a transfer is too late.
_GIVE_UP: Final = 0.95
_LOOKS: Final = 20
_SHORTEST_LOOK: Final = 0.1
_LONGEST_LOOK: Final = 30.0
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_STOPPING: Final = 5.0


class LongRunGuard:
    """Guard of one worker: a `Service`.

    Args:
        leases: None without a state: then only stored jobs are transferred.
        worker: shown as the owner of leases.
        seconds: duration of a lease without renewal; a lost job runs again that much later.
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
        self._held: dict[str, RunLease] = {}
        # Runs of this worker under a lease, with their attempts; the leases to renew.
        self._running: dict[RunLease, Attempt] = {}
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
        """Return whether deliveries of a physical queue are watched."""
        return not is_shard(queue) and (self._asked_leases is not None or is_jobs_queue(queue))

    def attach(self, consumer: Consumer, slots: Slots, reports: ReportSender, queues: Collection[str]) -> None:
        """Set the deliveries to watch; called before `run`.

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
        """Transfer runs that approach the timeout, until `stop`; then wait a while for pending records."""
        try:
            await self._look_on()
        except asyncio.CancelledError:
            await self._close()
            raise
        # Not after a failure: the service restarts, and transferred runs keep their leases meanwhile.
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
        # Kept over restarts: a delivery must not seem younger than it is.
        ages = self._ages = self._ages or DeliveryAges(now=loop.time())
        while not self._stopping.is_set():
            # Asked each time: the consumer may be connected to another node, of another version.
            limits = {queue: consumer.settle_within(queue) for queue in self._queues}
            shortest = min((limit for limit in limits.values() if limit is not None), default=None)
            seconds = _LONGEST_LOOK if shortest is None else shortest / _LOOKS
            if not await pause(self._stopping, min(max(seconds, _SHORTEST_LOOK), _LONGEST_LOOK)):
                self._look(limits, slots, ages, now=loop.time())

    def _look(self, limits: Mapping[str, float | None], slots: Slots, ages: DeliveryAges, *, now: float) -> None:
        self._go_on_without_message()
        running = {attempt.delivery: attempt for attempt in self._stats.running if self._can_be_handed_over(attempt)}
        waiting = [delivery for delivery in slots.waiting_deliveries() if self.is_over(delivery.queue)]
        ages.look((*running, *waiting), now=now)
        self._begun &= running.keys()

        def seconds_left(delivery: Delivery, part: float) -> float:
            limit = limits.get(delivery.queue)
            return math.inf if limit is None else part * limit - ages.most(delivery, now=now)

        slots.give_back([delivery for delivery in waiting if seconds_left(delivery, HANDED_OVER) <= 0])
        for delivery, attempt in running.items():
            if delivery not in self._begun and seconds_left(delivery, HANDED_OVER) <= 0:
                self._begun.add(delivery)
                self._begin(attempt, delivery, until=now + seconds_left(delivery, _GIVE_UP))

    def _go_on_without_message(self) -> None:
        """Report runs of stored jobs as alive whose messages the broker took back."""
        for attempt in tuple(self._stats.running):
            invitation = attempt.envelope.store
            if invitation is not None and self._detached is not None and is_revoked(attempt.delivery):
                self._detached.go_on(attempt, invitation)

    def _begin(self, attempt: Attempt, delivery: Delivery, *, until: float) -> None:
        if (invitation := attempt.envelope.store) is None:
            self._tasks.start(self._hand_over(attempt, delivery, until=until))
        elif self._detached is not None:
            self._tasks.start(self._detached.detach(attempt, delivery, invitation))

    def _can_be_handed_over(self, attempt: Attempt) -> bool:
        delivery = attempt.delivery
        return (
            attempt.plan.ack == "late"
            and not isinstance(delivery, LeasedDelivery)
            and self.is_over(delivery.queue)
            and not is_revoked(delivery)
        )

    async def _hand_over(self, attempt: Attempt, delivery: Delivery, *, until: float) -> None:
        hold = await self._publish_standby(attempt, delivery, until=until)
        if hold is None:
            return
        if attempt not in self._stats.running or attempt.delivery is not delivery or is_revoked(delivery):
            # The run ended meanwhile, or another worker has its message: the standby message is void.
            await self._say_done(hold)
            return
        handed = LeasedDelivery(delivery, lambda is_done: self._settle(hold, attempt, is_done=is_done))
        hold.handed = handed
        assert self._slots is not None
        self._slots.replace(delivery, handed)
        attempt.delivery = handed
        delivery.ack()
        _log.info(
            "job %s of task %s exceeds the broker's timeout: a lease in the state replaces its delivery",
            attempt.job_id,
            attempt.envelope.task,
        )
        self._running[hold] = attempt
        self._keeper.watch()

    async def _publish_standby(self, attempt: Attempt, delivery: Delivery, *, until: float) -> RunLease | None:
        """Return the lease once its standby message is at the broker; None if there is nothing left to do."""
        key = long_run_key(attempt.job_id, uuid.uuid4().hex)
        hold = RunLease(self._leases, key, attempt.job_id, owner=self._worker)
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while attempt in self._stats.running and not is_revoked(delivery):
            try:
                if not await hold.take(self._seconds):
                    continue
                self._held[hold.key] = hold
                due = self._clock.now_ms() + round(self._seconds * 1000)
                await self._publish(standby_of(attempt, delivery, key=hold.key, due=due))
            except (StateUnavailable, SendError, MalformedMessage) as error:
                is_hopeless = isinstance(error, EncodeError | MalformedMessage)
                seconds = backoff.next()
                if is_hopeless or asyncio.get_running_loop().time() + seconds > until:
                    _log.warning(
                        "job %s of task %s may run twice: it exceeds the broker's timeout, and moving it to a lease "
                        "failed: %s",
                        attempt.job_id,
                        attempt.envelope.task,
                        error,
                    )
                    break
                await asyncio.sleep(seconds)
            else:
                return hold
        if hold.key in self._held:
            # Its standby message may be at the broker.
            await self._say_done(hold)
        return None

    async def _renew(self) -> bool:
        held = [(hold, attempt) for hold, attempt in self._running.items() if not hold.is_over]
        answers = await asyncio.gather(*(hold.renew(self._seconds) for hold, _ in held), return_exceptions=True)
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

    def _settle(self, hold: RunLease, attempt: Attempt, *, is_done: bool) -> None:
        self._running.pop(hold, None)
        assert hold.handed is not None
        if hold.handed.revoked:
            self._held.pop(hold.key, None)
        else:
            self._tasks.start(self._say_done(hold) if is_done else self._give_back(hold, attempt, hold.handed))

    async def _give_back(self, hold: RunLease, attempt: Attempt, handed: LeasedDelivery) -> None:
        """Return the job to another worker: immediately, or when its standby message arrives."""
        try:
            await self._publish(copy_without_lease(attempt, handed))
        except (SendError, MalformedMessage) as error:
            _log.warning("job %s: it will run again within %g s: %s", attempt.job_id, self._seconds, error)
            with contextlib.suppress(StateUnavailable):
                await hold.release()
            self._held.pop(hold.key, None)
        else:
            await self._say_done(hold)

    async def _say_done(self, hold: RunLease) -> None:
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                # If another worker took it over, there is nothing left to record.
                await hold.renew(_REMEMBERED, note=_DONE)
                break
            except StateUnavailable as error:
                _log.warning("job %s may run twice: marking its lease as done failed: %s", hold.job_id, error)
                await asyncio.sleep(backoff.next())
        self._held.pop(hold.key, None)

    async def admits(self, attempt: Attempt) -> bool:
        """Return whether a message may run; a standby message that may not was settled."""
        standby = attempt.delivery
        key = standby.headers.get(header.LEASE)
        if self._asked_leases is None or not isinstance(key, str):
            return True
        left = self._seconds
        if key not in self._held:
            try:
                answer = await self._leases.acquire(key, owner=self._worker, seconds=_REMEMBERED, note=_TAKEN_OVER)
            except StateUnavailable as error:
                _log.warning("job %s: not started, another worker may be running it: %s", attempt.job_id, error)
            else:
                if not isinstance(answer, Lease):
                    self._recover(attempt, self._taken_over(key, answer, attempt))
                    return True
                if answer.note == _TAKEN_OVER:
                    # The worker that started it returned it, or is gone.
                    self._recover(attempt, self._taken_over(key, answer.token, attempt))
                    return True
                if answer.note == _DONE:
                    standby.ack()
                    return False
                left = answer.left
        await self._put_back(attempt, standby, left)
        return False

    def _taken_over(self, key: str, token: int, attempt: Attempt) -> RunLease:
        return RunLease(self._leases, key, attempt.job_id, owner=self._worker, token=token)

    def _recover(self, attempt: Attempt, hold: RunLease) -> None:
        _log.warning("job %s of task %s: its worker died; running it again", attempt.job_id, attempt.envelope.task)
        standby = attempt.delivery
        recovered = RecoveredDelivery(standby, lambda: self._tasks.start(self._say_done(hold)))
        if self._slots is not None:
            self._slots.replace(standby, recovered)
        attempt.delivery = recovered

    async def _put_back(self, attempt: Attempt, standby: Delivery, seconds: float) -> None:
        due = self._clock.now_ms() + round(min(seconds, self._seconds) * 1000)
        try:
            await self._publish(put_off(attempt, standby, due=due))
        except (SendError, MalformedMessage) as error:
            _log.warning("job %s: requeueing its standby message: %s", attempt.job_id, error)
            await pause(self._stopping, _LONGEST_PAUSE)
            standby.requeue()
        else:
            standby.ack()

    async def _publish(self, message: Outgoing) -> None:
        # To the broker, even if the app keeps delayed messages elsewhere.
        await self._broker.publish(message, timeout=self._send_timeout)
