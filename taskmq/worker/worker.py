"""One worker process's loop: slots, start and drain."""

import asyncio
import contextlib
import logging
import operator
import os
import socket
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Final

from taskmq.app import TaskMQ
from taskmq.broker import Broker, Consumer, Delivery, Subscription
from taskmq.duration import to_ms
from taskmq.errors import BrokerUnavailable, InvalidOption, QueueMissing, UnsupportedFeature
from taskmq.executor import Executor
from taskmq.executors import CoroutineExecutor, ProcessExecutor, ThreadExecutor
from taskmq.options import ExecutorKind
from taskmq.outcome import Dead, Outcome, Parked, Retried
from taskmq.topology import CLASSES, WorkQueue, is_shard, logical_queue
from taskmq.worker.attempt import Attempt
from taskmq.worker.backlog import Backlog
from taskmq.worker.config import WorkerConfig
from taskmq.worker.mover import moving
from taskmq.worker.process_facts import abandoned, open_descriptors, resident_bytes
from taskmq.worker.processor import Processor
from taskmq.worker.quarantine import Quarantine
from taskmq.worker.settle import Settler
from taskmq.worker.shards import LONGEST_HOLD, Shards
from taskmq.worker.starts import Starts
from taskmq.worker.status import RunningJob, WorkerStatus
from taskmq.worker.tally import Tally

__all__ = ["Worker"]

_log = logging.getLogger("taskmq.worker")

_RECONNECT_PAUSE: Final = 1.0
_INTERRUPT_TIMEOUT: Final = 5.0
_BURST_LOOK: Final = 0.1
_BURST_LOOKS: Final = 3
_JOBS_SHOWN: Final = 20


class Worker:
    """Runs the tasks of an app's queues until it is told to stop.

    Args:
        app: the app; its connections on the running loop are used, and closed at the end.
        target: `module:attribute` of the app, for tasks that run in processes of their own.

    Attributes:
        is_ready: set once the worker consumes.
        tally: what it has done and does.
        left_behind: tasks that did not end even when they were cancelled; their jobs went back.

    Raises:
        InvalidOption: no queue to consume, or an impossible setting.
        UnsupportedFeature: a task needs what the app has not configured.
    """

    def __init__(self, app: TaskMQ, config: WorkerConfig, *, target: str = "") -> None:
        self._app = app
        self._config = config
        self._target = target
        self.name = config.name or f"{socket.gethostname()}:{os.getpid()}"
        self._queues = _queues(app, config)
        _check(app, config)
        self._backlog = Backlog(
            self._queues,
            slots=config.concurrency,
            weights=dict(zip(CLASSES, config.weights, strict=True)),
            strict=config.strict,
            starvation_limit=config.max_starve,
        )
        self._shards = Shards(
            app.clock,
            unknown_attempts=config.unknown_attempts,
            unknown_delay=config.unknown_delay,
            again=self._again,
            passed=self._passed,
        )
        self.tally = Tally()
        self._started_at = app.clock.now_ms()
        self._consumer: Consumer | None = None
        self._executors: dict[ExecutorKind, Executor] = {}
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._over: set[Delivery] = set()
        self._quarantine: Quarantine | None = None
        self._is_draining = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self.is_ready = asyncio.Event()
        self.left_behind = 0

    @property
    def queues(self) -> list[WorkQueue]:
        return self._queues

    def status(self) -> WorkerStatus:
        """How it goes now; costs a few system calls."""
        now = time.monotonic()
        longest = sorted(self.tally.running.items(), key=operator.itemgetter(1))[:_JOBS_SHOWN]
        return WorkerStatus(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version("taskmq"),
            app=self._target or self._app.name,
            queues=[queue.name for queue in self._queues],
            state=self._state,
            slots=self._config.concurrency,
            running=len(self._running),
            backlog=len(self._backlog),
            ended=self.tally.ended,
            abandoned=abandoned(self._executors.values()),
            memory=resident_bytes(),
            descriptors=open_descriptors(),
            loop_lag=0.0,
            started=self._started_at,
            jobs=[
                RunningJob(
                    job_id=attempt.job_id,
                    task=attempt.envelope.task,
                    queue=logical_queue(attempt.delivery.queue),
                    attempt=attempt.envelope.attempt,
                    seconds=now - since,
                )
                for attempt, since in longest
            ],
        )

    @property
    def _state(self) -> str:
        if self._is_draining.is_set():
            return "draining"
        if self._consumer is None:
            return "starting"
        return "running" if self._consumer.healthy else "disconnected"

    def drain(self) -> None:
        """Stop taking deliveries; `run` returns once what runs has ended, or been interrupted after the grace."""
        self._is_draining.set()

    def requeue_now(self) -> None:
        """Drain without grace: interrupt what runs and give it back."""
        self._is_draining.set()
        self._is_hurried.set()

    async def run(self) -> None:
        """Consume until `drain`, or, in a burst, until the queues stay empty. Returns with everything settled.

        Cancelling it is `requeue_now`.
        """
        app = self._app
        executors = self._executors = _executors(app, self._target, self._config)
        try:
            self._processor = Processor(app, executors, self._config)
            self._settler = Settler(app, worker=self.name)
            self._quarantine = self._new_quarantine()
            self._consumer = await self._started()
            if self._consumer is not None:
                async with AsyncExitStack() as parts:
                    # What lives as long as the worker consumes.
                    await parts.enter_async_context(moving(app))
                    await self._serve(self._consumer)
        finally:
            for executor in executors.values():
                await executor.aclose()
            if self._quarantine is not None:
                await self._quarantine.aclose()
            await app.aclose()

    async def _started(self) -> Consumer | None:
        """The running consumer; None when the worker was stopped before the broker answered."""
        starting = asyncio.create_task(self._start())
        stopped = asyncio.create_task(self._is_draining.wait())
        try:
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            return starting.result() if starting.done() else None
        finally:
            starting.cancel()
            stopped.cancel()
            await asyncio.wait((starting, stopped))

    async def _start(self) -> Consumer:
        session = self._app.session()
        prefetch = self._config.effective_prefetch
        subscriptions = [
            # The next of a shard would only wait here, where it cannot be run by anybody else.
            Subscription(name, prefetch if queue.ordered is None else 1, longest=_longest(self._app, queue))
            for queue in self._queues
            for name in queue.physical
        ]
        while True:
            try:
                await session.declare(self._queues)
                return await session.broker.consume(subscriptions, self._deliver)
            except (BrokerUnavailable, QueueMissing) as error:
                _log.warning("not consuming yet: %s", error)
                await asyncio.sleep(_RECONNECT_PAUSE)

    async def _serve(self, consumer: Consumer) -> None:
        self.is_ready.set()
        try:
            if self._config.burst:
                await self._until_idle(self._app.session().broker)
            await self._is_draining.wait()
        except asyncio.CancelledError:
            self.requeue_now()
            raise
        finally:
            await self._drain(consumer)

    def _deliver(self, delivery: Delivery) -> None:
        # Also while it drains: what comes before the consumer has stopped goes back with the rest of the backlog.
        self._backlog.put(delivery, now=time.monotonic())
        self._fill_slots()

    def _fill_slots(self) -> None:
        while len(self._running) < self._config.concurrency and not self._is_draining.is_set():
            if self._quarantine is not None and self._quarantine.is_closed:
                return
            delivery = self._backlog.take(now=time.monotonic())
            if delivery is None:
                return
            task = asyncio.create_task(self._process(delivery))
            self._running[task] = delivery
            task.add_done_callback(self._slot_freed)

    async def _process(self, delivery: Delivery) -> None:
        read = self._processor.read(delivery)
        is_ordered = is_shard(delivery.queue)
        if is_ordered:
            waits = self._shards.take(delivery, read)
            if waits is None:
                return
            read = waits
        if isinstance(read, Parked):
            await self._settler.park(delivery, read)
            return
        self.tally.start(read, now=time.monotonic())
        plan, quarantine = read.task.plan, self._quarantine
        if (delivery.redelivered or plan.executor == "process") and plan.ack == "late" and quarantine is not None:
            await self._run_in(quarantine, read)
            return
        try:
            outcome = await self._processor.run(read)
        except BaseException:
            self.tally.forget(read)
            raise
        self.tally.end(read, outcome, now=time.monotonic())
        # From here on the run is over: a stopping worker lets it be settled instead of interrupting it.
        self._over.add(delivery)
        await self._end(read, outcome)

    async def _run_in(self, quarantine: Quarantine, attempt: Attempt) -> None:
        try:
            outcome = await quarantine.run(attempt)
        except BaseException:
            self.tally.forget(attempt)
            raise
        self.tally.end(attempt, outcome, now=time.monotonic())
        self._over.add(attempt.delivery)
        is_done = await self._end(attempt, outcome)
        if is_done and isinstance(outcome, Dead) and outcome.reason == "worker_lost":
            await quarantine.forget(attempt)

    async def _end(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Settle what was run; whether its message was taken off the broker."""
        if not is_shard(attempt.delivery.queue):
            return await self._settler.settle(attempt, outcome)
        if self._shards.keep(attempt, outcome):
            if isinstance(outcome, Retried):
                self._settler.note_retry(attempt, to_ms(outcome.delay), outcome.error)
            return False
        is_done = await self._settler.settle(attempt, outcome)
        if is_done:
            self._shards.forget(attempt.delivery)
        return is_done

    def _again(self, delivery: Delivery) -> None:
        self._backlog.release(delivery.queue, now=time.monotonic())
        self._backlog.put(delivery, now=time.monotonic(), first=True)
        self._fill_slots()

    def _passed(self, delivery: Delivery) -> None:
        self._backlog.release(delivery.queue, now=time.monotonic())
        self._fill_slots()

    def _new_quarantine(self) -> Quarantine | None:
        if not self._config.max_starts:
            return None
        return Quarantine(
            self._processor.run,
            Starts(self._app),
            most=self._config.max_starts,
            running=self._running,
            resume=self._fill_slots,
        )

    def _slot_freed(self, task: "asyncio.Task[None]") -> None:
        delivery = self._running.pop(task)
        self._over.discard(delivery)
        if task.cancelled():
            # Interrupted before its first step.
            delivery.requeue()
        elif (error := task.exception()) is not None:
            _log.critical("a delivery could not be settled; it goes back to its queue", exc_info=error)
            delivery.requeue()
        self._backlog.leave(delivery.queue)
        if not self._shards.holds(delivery):
            self._backlog.release(delivery.queue, now=time.monotonic())
        self._fill_slots()

    async def _until_idle(self, broker: Broker) -> None:
        """Return once there has been nothing to do for some looks in a row, or the worker is stopped."""
        names = [name for queue in self._queues for name in queue.physical]
        idle = 0
        while idle < _BURST_LOOKS and not self._is_draining.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_draining.wait(), _BURST_LOOK)
            try:
                is_idle = not self._is_busy and not any(entry.ready for entry in await broker.stats(names))
            except BrokerUnavailable:
                is_idle = False
            idle = idle + 1 if is_idle and not self._is_busy else 0
        self.drain()

    @property
    def _is_busy(self) -> bool:
        return bool(self._running) or self._shards.is_holding

    async def _drain(self, consumer: Consumer) -> None:
        await consumer.stop()
        for delivery in (*self._shards.close(), *self._backlog.clear()):
            delivery.requeue()
        if self._running:
            _log.info("draining: %d running, %g s of grace", len(self._running), self._config.grace)
            hurried = asyncio.create_task(self._is_hurried.wait())
            finished = asyncio.create_task(self._all_done())
            try:
                await asyncio.wait(
                    (hurried, finished), timeout=self._config.grace, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                hurried.cancel()
                if self._running:
                    await self._interrupt(finished)
                finished.cancel()

    async def _all_done(self) -> None:
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def _interrupt(self, finished: "asyncio.Task[None]") -> None:
        _log.warning("interrupting %d running tasks; they go back to their queues", len(self._running))
        self._processor.is_interrupting = True
        if self._quarantine is not None:
            self._quarantine.is_stopping = True
        self._settler.stop_trying()
        for task, delivery in tuple(self._running.items()):
            if delivery not in self._over:
                task.cancel()
        await asyncio.wait((finished,), timeout=_INTERRUPT_TIMEOUT)
        for delivery in self._running.values():
            delivery.requeue()
        self.left_behind = len(self._running)


def _queues(app: TaskMQ, config: WorkerConfig) -> list[WorkQueue]:
    if config.queues:
        return [app.queue(name) for name in dict.fromkeys(config.queues)]
    if not app.queues:
        raise InvalidOption("the app has no tasks, so there is no queue to consume: define one, or name queues")
    return app.queues


def _check(app: TaskMQ, config: WorkerConfig) -> None:
    if config.concurrency < 1 or config.effective_prefetch < 1:
        raise InvalidOption("concurrency and prefetch: at least 1")
    if min(config.weights) < 1 or config.max_starve <= 0:
        raise InvalidOption("weights: at least 1 each; max_starve: more than 0 seconds")
    if config.max_starts < 0 or config.max_starts == 1:
        # The first start is not recorded: of one start nobody knows whether it ever was.
        raise InvalidOption("max_starts: at least 2, or 0 for no limit")
    if app.state_url is None:
        if app.delay == "state":
            raise UnsupportedFeature("delay='state' needs a state, and the app has none")
        wanting = sorted(task.name for task in app.tasks.values() if task.plan.result)
        if wanting:
            raise UnsupportedFeature(f"result=True needs a state, and the app has none: {', '.join(wanting)}")


def _longest(app: TaskMQ, queue: WorkQueue) -> float | None:
    """How many seconds a delivery may stay unsettled; None where a task of the queue has no time limit."""
    longest = 0.0
    for task in app.tasks.values():
        if task.queue == queue.name:
            if task.plan.timeout is None:
                return None
            longest = max(longest, task.plan.timeout)
    if not longest:
        return None
    return longest if queue.ordered is None else longest + LONGEST_HOLD


def _executors(app: TaskMQ, target: str, config: WorkerConfig) -> dict[ExecutorKind, Executor]:
    kinds = {task.plan.executor for task in app.tasks.values()}
    executors: dict[ExecutorKind, Executor] = {}
    if "async" in kinds:
        executors["async"] = CoroutineExecutor()
    if "thread" in kinds:
        executors["thread"] = ThreadExecutor()
    if "process" in kinds:
        if not target:
            raise UnsupportedFeature("executor='process' needs a worker that knows where its app is: taskmq worker")
        executors["process"] = ProcessExecutor(target, size=config.process_slots, url=app.url, state=app.state_url)
    return executors
