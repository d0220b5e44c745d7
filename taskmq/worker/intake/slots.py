"""Owner of the worker's slots: knows every delivery in hand and whether it has one.

    put -> waiting for a slot -- take ------> in a slot -- leave, or end ------------------> gone
                ^  |                           |    ^
                |  +-- shed, give_back -> gone |    +- take_granted, withdraw --+
                |                              +-- acquire: not free -> waiting for resources
                +------ its time has come <----+-- end: kept in its shard -> held

A delivery that waits for its turn in a shard, or for resources in use, is in hand without a slot. Only this module
moves deliveries between the parts that know them: the `Backlog` (next delivery), the `ResourcePool` (waits for
resources), `OrderedShards` (held deliveries), the `TaskPool` (runs in asyncio tasks) and `ThreadRuns` (runs in
threads).
"""

import asyncio
import contextvars
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.errors import InvalidOption
from taskmq.executors import ThreadExecutor
from taskmq.model.clock import Clock
from taskmq.model.resources import Amounts
from taskmq.model.topology import CLASSES, WorkQueue
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import WorkerConfig
from taskmq.worker.intake.backlog import Backlog
from taskmq.worker.intake.ordered_shards import OrderedShards
from taskmq.worker.intake.resources import ResourcePool
from taskmq.worker.intake.returns import Returns
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import Pause, TaskPool, WorkItem
from taskmq.worker.run.thread_runs import ThreadRuns


class Slots:
    """The slots of one worker, and the deliveries that it has in hand.

    Args:
        resources: resources of the worker for tasks that need more than a slot.
        threads: executes plain functions; None if the app has none.
        next_item: returns the next item and its delivery; see `TaskPool`.
        thread_ended: called with each attempt that ended in a thread and must be settled, and with its result.

    Attributes:
        concurrency: maximum of deliveries in slots.
        monotonic: the clock of waits.
        resources: attempts that wait for resources.
        shards: deliveries that are held in ordered queues.
        take: assigns a slot to the next delivery; None if none may start.
        leave: frees the slot of a settled delivery that never waited.
        settling: deliveries in slots whose run ended, and which must not be interrupted.
        threads: runs in threads; None if there are none.
    """

    def __init__(
        self,
        queues: Sequence[WorkQueue],
        config: WorkerConfig,
        resources: ResourcePool,
        clock: Clock,
        stats: WorkerStats,
        *,
        threads: ThreadExecutor | None,
        next_item: Callable[[], tuple[Delivery, WorkItem] | Pause | None],
        thread_ended: Callable[[Attempt, object, BaseException | None], None],
    ) -> None:
        self.concurrency = config.concurrency
        self.monotonic = clock.monotonic
        self.resources = resources
        self.settling: set[Delivery] = set()
        self._backlog = Backlog(
            queues,
            slots=config.concurrency,
            weights=dict(zip(CLASSES, config.weights, strict=True)),
            strict=config.strict,
            starvation_limit=config.starvation_limit,
            limits=config.queue_slots,
            shares=config.queue_shares,
        )
        # Bound directly, because it is called for each delivery.
        self.take = self._backlog.take
        self.leave = self._backlog.leave
        self.shards = OrderedShards(
            clock,
            unknown_attempts=config.unknown_attempts,
            unknown_delay=config.unknown_delay,
            again=self._take_again,
            passed=self._pass_on,
        )
        self._returns = Returns()
        self._cancelled_items: list[tuple[Delivery, WorkItem]] = []
        self._paused: set[str] = set()
        self.threads: ThreadRuns | None = None
        if threads is not None:
            self.threads = ThreadRuns(threads, stats, clock.monotonic, ended=thread_ended, settled=self.on_settled)
        self._pool: TaskPool[Delivery] = TaskPool(
            config.concurrency,
            take=next_item,
            more=self._more,
            done=self.end,
            aside=() if self.threads is None else self.threads.going,
        )
        if threads is not None:
            threads.on_report(self._pool.call)

    @property
    def room(self) -> int:
        """Number of free slots."""
        return self._pool.room

    @property
    def running(self) -> int:
        """Number of occupied slots."""
        return len(self._pool.busy) + (0 if self.threads is None else len(self.threads.going))

    @property
    def waiting(self) -> int:
        """Number of deliveries in hand that wait for a slot or for resources."""
        return len(self._backlog) + len(self.resources)

    @property
    def is_busy(self) -> bool:
        """Whether anything runs or waits here. Between two turns of the loop, short runs wait and nothing runs."""
        return bool(self.running or self.waiting or self._cancelled_items) or self.shards.is_holding

    @property
    def in_tasks(self) -> Mapping["asyncio.Task[None]", Delivery]:
        """Deliveries that asyncio tasks execute."""
        return self._pool.busy

    def waiting_deliveries(self) -> list[Delivery]:
        """Return the deliveries in hand that have not started."""
        return [*self._backlog.deliveries(), *(attempt.delivery for attempt in self.resources.attempts())]

    def call(self) -> None:
        """Look for work, because something may start."""
        self._pool.call()

    def resize(self, concurrency: int) -> None:
        """Set the number of slots; runs beyond it continue to their end.

        Raises:
            InvalidOption: the number is below 1.
        """
        if concurrency < 1:
            raise InvalidOption("concurrency: must be at least 1")
        self.concurrency = self._pool.size = concurrency
        self._backlog.resize(concurrency)
        self._pool.call()

    def put(self, *deliveries: Delivery) -> None:
        """Accept deliveries of one queue from the broker."""
        self._backlog.put(*deliveries, now=self.monotonic())
        self._pool.call()

    def take_granted(self, *, now: float) -> Attempt | None:
        """Assign a slot to an attempt that waited for resources which are free now; its grant is set."""
        while self.resources and (fits := self.resources.next(now=now)) is not None:
            attempt, grant = fits
            if not is_revoked(attempt.delivery):
                attempt.grant = grant
                self._backlog.enter(attempt.delivery.queue)
                return attempt
            self.resources.give_back(grant)
            self._backlog.release(attempt.delivery.queue, now=now)
        return None

    def take_cancelled(self) -> tuple[Delivery, WorkItem] | None:
        """Return the item that settles a cancelled attempt which waited for resources."""
        return self._cancelled_items.pop(0) if self._cancelled_items else None

    def acquire(self, attempt: Attempt, needs: Amounts) -> bool:
        """Grant an attempt in a slot its resources.

        Otherwise return False: it waits, without a slot once its item ends.
        """
        now = self.monotonic()
        attempt.grant = self.resources.take(needs, now=now)
        if attempt.grant is None:
            self.resources.wait(attempt, needs, now=now)
        return attempt.grant is not None

    def withdraw(self, job_id: str, settle: Callable[[Attempt], WorkItem]) -> bool:
        """Assign a slot to a job's attempt that waits for resources, to settle it; return whether one waits."""
        if not self.resources or (held := self.resources.remove(job_id)) is None:
            return False
        self._backlog.enter(held.delivery.queue)
        self._cancelled_items.append((held.delivery, settle(held)))
        self._pool.call()
        return True

    def carry_out(self, delivery: Delivery, item: WorkItem, variables: contextvars.Context) -> None:
        """Have an asyncio task settle a run that ended elsewhere, in the slot that it has."""
        self._pool.carry_out(delivery, item, variables)

    def replace(self, old: Delivery, new: Delivery) -> None:
        """Settle `new` instead of `old` from now on."""
        for task, delivery in self._pool.busy.items():
            if delivery is old:
                self._pool.busy[task] = new

    def drop(self, delivery: Delivery, *, now: float) -> None:
        """Drop a taken delivery, because the broker redelivered it to another worker."""
        self._backlog.leave(delivery.queue, now=now)
        self._backlog.release(delivery.queue, now=now)

    def end(self, delivery: Delivery, error: BaseException | None) -> None:
        """End an item: its delivery has no slot any more, and stays in hand only if it is held or waits."""
        self.settling.discard(delivery)
        now = self.monotonic()
        if error is not None:
            if issubclass(type(error), asyncio.CancelledError):
                # It was interrupted before its first step.
                delivery.requeue()
            else:
                self._returns.put(delivery, error)
        self._backlog.leave(delivery.queue, now=now)
        if not self.shards.holds(delivery) and not (self.resources and self.resources.has(delivery)):
            self._backlog.release(delivery.queue, now=now)

    def on_settled(self, delivery: Delivery, error: BaseException | None, /, *, now: float) -> None:
        """Free the slot of a delivery that ran in a thread and is settled; with an error, settle it."""
        if error is None:
            self._backlog.leave(delivery.queue, now=now)
        else:
            self.end(delivery, error)

    def shed(self, queue: str, *, keep: int) -> None:
        """Return the waiting deliveries of a physical queue beyond the first `keep`."""
        for delivery in self._backlog.shed(queue, keep=keep):
            delivery.requeue()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Return those of these deliveries that have not started; none of a shard."""
        unwanted = set(deliveries)
        if not unwanted:
            return
        given = self._backlog.retract(unwanted)
        for attempt in self.resources.attempts():
            if attempt.delivery in unwanted and (removed := self.resources.remove(attempt.job_id)) is not None:
                given.append(removed.delivery)
        for delivery in given:
            delivery.requeue()

    def pause(self, queues: Collection[str]) -> None:
        """Return what has not started of these physical queues, and later deliveries of them."""
        self._paused.update(queues)
        for queue in queues:
            self.shed(queue, keep=0)
        now = self.monotonic()
        for attempt in self.resources.attempts():
            delivery = attempt.delivery
            if delivery.queue in self._paused and self.resources.remove(attempt.job_id) is not None:
                delivery.requeue()
                self._backlog.release(delivery.queue, now=now)

    def resume(self, queues: Collection[str]) -> None:
        """Accept deliveries of these physical queues again."""
        self._paused.difference_update(queues)

    def give_back_all(self) -> None:
        """Return everything that has not started, and hold nothing from here on."""
        self._returns.close()
        waiting = [attempt.delivery for attempt in self.resources.clear()]
        for delivery in (*self.shards.close(), *waiting, *self._backlog.clear()):
            delivery.requeue()

    def give_up(self) -> int:
        """Return the deliveries whose tasks did not end although they were cancelled; return their number."""
        for delivery in self._pool.busy.values():
            delivery.requeue()
        return len(self._pool.busy)

    async def wait_finished(self) -> None:
        """Return once nothing runs."""
        while self.running:
            ends: Sequence[asyncio.Future[Any]] = () if self.threads is None else self.threads.ends()
            await asyncio.wait((*self._pool.busy, *ends))

    async def aclose(self) -> None:
        """Release all resources after the last run."""
        self._returns.close()
        if self.threads is not None:
            self.threads.close()
        self._pool.close()
        await self._pool.wait_closed()

    def _more(self) -> int:
        return len(self._backlog) + len(self.resources) + len(self._cancelled_items)

    def _take_again(self, delivery: Delivery) -> None:
        now = self.monotonic()
        self._backlog.release(delivery.queue, now=now)
        if delivery.queue in self._paused:
            delivery.requeue()
            return
        self._backlog.put(delivery, now=now, first=True)
        self._pool.call()

    def _pass_on(self, delivery: Delivery) -> None:
        self._backlog.release(delivery.queue, now=self.monotonic())
        self._pool.call()
