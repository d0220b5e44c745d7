"""One worker process's loop: slots, start and drain."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import Final

from taskmq.app import TaskMQ
from taskmq.broker import Broker, Consumer, Delivery, Subscription
from taskmq.errors import BrokerUnavailable, InvalidOption, QueueMissing, UnsupportedFeature
from taskmq.executor import Executor
from taskmq.executors import CoroutineExecutor, ProcessExecutor, ThreadExecutor
from taskmq.options import ExecutorKind
from taskmq.outcome import Parked
from taskmq.topology import WorkQueue, check_queue_name
from taskmq.worker.backlog import Backlog
from taskmq.worker.config import WorkerConfig
from taskmq.worker.processor import Processor
from taskmq.worker.settle import Settler

__all__ = ["Worker"]

_log = logging.getLogger("taskmq.worker")

_RECONNECT_PAUSE: Final = 1.0
_INTERRUPT_TIMEOUT: Final = 5.0
_BURST_LOOK: Final = 0.1
_BURST_LOOKS: Final = 3


class Worker:
    """Runs the tasks of an app's queues until it is told to stop.

    Args:
        app: the app; its connections on the running loop are used, and closed at the end.
        target: `module:attribute` of the app, for tasks that run in processes of their own.

    Attributes:
        is_ready: set once the worker consumes.
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
        self._backlog = Backlog(self._queues)
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._over: set[Delivery] = set()
        self._is_draining = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self.is_ready = asyncio.Event()
        self.left_behind = 0

    @property
    def queues(self) -> list[WorkQueue]:
        return self._queues

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
        executors = _executors(app, self._target, self._config)
        try:
            self._processor = Processor(app, executors, self._config)
            self._settler = Settler(app, worker=self.name)
            consumer = await self._started()
            if consumer is not None:
                await self._serve(consumer)
        finally:
            for executor in executors.values():
                await executor.aclose()
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
        subscriptions = [Subscription(name, prefetch) for queue in self._queues for name in queue.physical]
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
            delivery = self._backlog.take(now=time.monotonic())
            if delivery is None:
                return
            task = asyncio.create_task(self._process(delivery))
            self._running[task] = delivery
            task.add_done_callback(self._slot_freed)

    async def _process(self, delivery: Delivery) -> None:
        read = self._processor.read(delivery)
        if isinstance(read, Parked):
            await self._settler.park(delivery, read)
            return
        outcome = await self._processor.run(read)
        # From here on the run is over: a stopping worker lets it be settled instead of interrupting it.
        self._over.add(delivery)
        await self._settler.settle(read, outcome)

    def _slot_freed(self, task: "asyncio.Task[None]") -> None:
        delivery = self._running.pop(task)
        self._over.discard(delivery)
        if task.cancelled():
            # Interrupted before its first step.
            delivery.requeue()
        elif (error := task.exception()) is not None:
            _log.critical("a delivery could not be settled; it goes back to its queue", exc_info=error)
            delivery.requeue()
        self._fill_slots()

    async def _until_idle(self, broker: Broker) -> None:
        """Return once there has been nothing to do for some looks in a row, or the worker is stopped."""
        names = [name for queue in self._queues for name in queue.physical]
        idle = 0
        while idle < _BURST_LOOKS and not self._is_draining.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_draining.wait(), _BURST_LOOK)
            try:
                is_idle = not self._running and not any(entry.ready for entry in await broker.stats(names))
            except BrokerUnavailable:
                is_idle = False
            idle = idle + 1 if is_idle and not self._running else 0
        self.drain()

    async def _drain(self, consumer: Consumer) -> None:
        await consumer.stop()
        for delivery in self._backlog.clear():
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
        return [WorkQueue(check_queue_name(name)) for name in dict.fromkeys(config.queues)]
    if not app.queues:
        raise InvalidOption("the app has no tasks, so there is no queue to consume: define one, or name queues")
    return app.queues


def _check(app: TaskMQ, config: WorkerConfig) -> None:
    if config.concurrency < 1 or config.effective_prefetch < 1:
        raise InvalidOption("concurrency and prefetch: at least 1")
    if app.state_url is None:
        wanting = sorted(task.name for task in app.tasks.values() if task.plan.result)
        if wanting:
            raise UnsupportedFeature(f"result=True needs a state, and the app has none: {', '.join(wanting)}")


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
