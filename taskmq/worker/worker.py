"""Worker: the main loop of one worker process, from start to drain."""

import asyncio
import logging
import operator
import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.client.queues import StatePauses
from taskmq.contracts.broker import Broker, Consumer
from taskmq.contracts.broker_abilities import Broadcasting, Parcelling
from taskmq.durable.service import Service, ServiceGroup, pause, unless_set
from taskmq.errors import BrokerUnavailable, InvalidOption
from taskmq.model.commands import Preemption
from taskmq.model.telemetry.worker_status import RunningJob, WorkerStatus
from taskmq.model.topology import WorkQueue, logical_queue
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.version import VERSION
from taskmq.worker.config import WorkerConfig
from taskmq.worker.dispatcher import Dispatcher
from taskmq.worker.guards.build import build_guards
from taskmq.worker.host.event_loop import LoopMonitor
from taskmq.worker.host.process_facts import ProcessorUse, count_abandoned, open_descriptors, resident_bytes
from taskmq.worker.intake.prefetch_tuner import PrefetchTuner
from taskmq.worker.long_runs.guard import LongRunGuard
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run_records import RunRecords
from taskmq.worker.services.announced_pauses import AnnouncedPauses
from taskmq.worker.services.cancellations import Cancellations
from taskmq.worker.services.commands import CommandService
from taskmq.worker.services.event_publisher import EventPublisher
from taskmq.worker.services.queue_pauses import QueuePauses
from taskmq.worker.services.task_announcer import TaskAnnouncer
from taskmq.worker.setup import check_tasks, executors_for, node_of, queues_of, resources_for
from taskmq.worker.subscriptions import find_lanes, subscribe

_log = logging.getLogger("taskmq.worker")

_BURST_LOOK: Final = 0.1
_BURST_LOOKS: Final = 3
_JOBS_SHOWN: Final = 20
_CPU_WINDOW: Final = 10.0
# For services that announced something to others or hold something of them, and for all others.
_TIME_TO_SETTLE: Final = 6.0
_TIME_TO_END: Final = 0.5


class Worker:
    """Runs the tasks of an app's queues until it is asked to stop.

    Args:
        app: the app; its connections on the running loop are used, and closed at the end.
        target: `module:attribute` of the app, for tasks that run in processes of their own.

    Attributes:
        is_ready: set once the worker consumes.
        stats: counts of its runs.
        is_dismissed: whether the supervisor must not replace it.
        left_behind: tasks that did not end although they were cancelled; their jobs were returned.

    Raises:
        InvalidOption: no queue to consume, or an impossible setting.
        UnsupportedFeature: a task needs what the app has not configured.
    """

    def __init__(self, app: TaskMQ, config: WorkerConfig, *, target: str = "") -> None:
        self._app = app
        self._config = config
        self._target = target
        self.name = config.name or f"{socket.gethostname()}:{os.getpid()}"
        self._queues = queues_of(app, config)
        check_tasks(app)
        self.stats = WorkerStats()
        self._records = RunRecords(app, config, self._queues, self.stats, worker=self.name)
        self._loop_monitor = LoopMonitor(patience=config.slow_loop_warning, running=self.stats.names)
        self._cpu = ProcessorUse(_CPU_WINDOW)
        self._started_at = app.sessions.clock.now_ms()
        self._consumer: Consumer | None = None
        self._executors: dict[ExecutorKind, Executor] = {}
        self._dispatcher: Dispatcher | None = None
        self._long_runs: LongRunGuard | None = None
        self._events: EventPublisher | None = None
        self._cancellations: Cancellations | None = None
        self._pauses: QueuePauses | None = None
        self._tasks: TaskAnnouncer | None = None
        self._resources = resources_for(app, config, self._queues)
        self._node = node_of(config)
        self._is_draining = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self.is_ready = asyncio.Event()
        self.left_behind = 0
        self.is_dismissed = False
        self._grace = config.grace

    @property
    def queues(self) -> list[WorkQueue]:
        return self._queues

    @property
    def running(self) -> int:
        """Number of current runs."""
        return 0 if self._dispatcher is None else self._dispatcher.slots.running

    @property
    def is_telling(self) -> bool:
        """Whether reports on stored jobs are in transit."""
        return self._dispatcher is not None and self._dispatcher.reports.is_telling

    def status(self) -> WorkerStatus:
        """Return the present status; costs a few system calls."""
        now, dispatcher = self._app.sessions.clock.monotonic(), self._dispatcher
        longest = sorted(self.stats.running.items(), key=operator.itemgetter(1))[:_JOBS_SHOWN]
        return WorkerStatus(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            app=self._target or self._app.name,
            queues=[queue.name for queue in self._queues],
            paused=[] if self._pauses is None else self._pauses.names,
            state=self._state,
            slots=self._config.concurrency if dispatcher is None else dispatcher.slots.concurrency,
            running=self.running,
            backlog=0 if dispatcher is None else dispatcher.slots.waiting,
            in_hand=self._in_hand(),
            ended=self.stats.ended,
            abandoned=count_abandoned(self._executors.values()),
            unsettled=0 if dispatcher is None else dispatcher.unsettled,
            memory=resident_bytes(),
            cpu=self._cpu.cores(),
            descriptors=open_descriptors(),
            loop_lag=self._loop_monitor.lag,
            started=self._started_at,
            at=self._app.sessions.clock.now_ms(),
            node=self._node,
            parcels=isinstance(self._app.sessions.current().broker, Parcelling),
            app_version=self._app.sessions.app_version,
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

    def _in_hand(self) -> dict[str, int]:
        waiting = [] if self._dispatcher is None else self._dispatcher.slots.waiting_deliveries()
        deliveries = (*(attempt.delivery for attempt in self.stats.running), *waiting)
        return dict(Counter(logical_queue(delivery.queue) for delivery in deliveries))

    @property
    def _state(self) -> str:
        if self._is_draining.is_set():
            return "draining"
        if self._consumer is None:
            return "starting"
        if not self._consumer.healthy:
            return "disconnected"
        return "paused" if self._pauses is not None and self._pauses.pauses_all else "running"

    def drain(self) -> None:
        """Stop accepting deliveries; `run` returns once running jobs ended, or were interrupted after the grace."""
        is_first = not self._is_draining.is_set()
        self._is_draining.set()
        if self._dispatcher is not None:
            self._dispatcher.stop_taking()
        if is_first and self._events is not None:
            self._events.tell("draining")

    def dismiss(self, grace: float | None = None) -> float:
        """Drain, without being replaced by the supervisor; return the seconds that running jobs have to end.

        Args:
            grace: those seconds, unless the worker drains already; None: as configured.
        """
        self.is_dismissed = True
        if grace is not None and not self._is_draining.is_set():
            self._grace = grace
        self.drain()
        return self._grace

    def set_concurrency(self, concurrency: int) -> None:
        """Set the maximum of concurrent runs; runs beyond it continue to their end.

        Raises:
            InvalidOption: the number is below 1, or the worker is not running.
        """
        if self._dispatcher is None:
            raise InvalidOption("concurrency: the worker does not run yet")
        self._dispatcher.slots.resize(concurrency)

    def set_paused(self, *, is_paused: bool) -> None:
        """Start no jobs until this is called again with False; running jobs continue, and waiting ones are returned.

        Raises:
            InvalidOption: the worker is draining, or is not running.
        """
        if (pauses := self._pauses) is None or self._is_draining.is_set():
            raise InvalidOption(f"a worker that is {self._state} cannot be paused or resumed")
        pauses.pauses_all = is_paused
        pauses.wake()
        if self._events is not None:
            # Schedulers must not count its slots.
            self._events.tell("beat")

    def on_revoked(self, job_id: str, reason: str = "") -> None:
        """Handle a cancellation over the broker: read the state, which is authoritative, immediately.

        Args:
            reason: a scheduler's, for a stored job: its run is stopped even without a state.
        """
        _log.debug("received a cancellation of job %s", job_id)
        if self._cancellations is not None:
            self._cancellations.wake()
        if reason and self._dispatcher is not None:
            self._dispatcher.cancel(job_id, reason)

    def preempt(self, jobs: Sequence[Preemption]) -> None:
        """Return those of these stored jobs that are here: a scheduler wants their slots for others."""
        if self._dispatcher is not None:
            self._dispatcher.preempt(jobs)

    def look_at_pauses(self) -> None:
        """Handle a pause or a resumption over the broker: read the state immediately."""
        if self._pauses is not None:
            self._pauses.wake()

    def tell_tasks(self) -> None:
        """Announce the tasks, because a scheduler asks for them."""
        if self._tasks is not None:
            self._tasks.wake()

    def requeue_now(self) -> None:
        """Drain without grace: interrupt running jobs and return them."""
        self.drain()
        self._is_hurried.set()

    async def run(self) -> None:
        """Consume until `drain`, or, in a burst, until the queues stay empty. Returns with everything settled.

        Cancelling it is `requeue_now`.
        """
        app = self._app
        self._executors = executors_for(app, self._target, self._config)
        try:
            if any(queue.lanes is not None for queue in self._queues):
                finding = find_lanes(app.sessions.current().broker, self._queues)
                self._queues = await unless_set(self._is_draining, finding) or self._queues
            self._dispatcher = dispatcher = self._new_dispatcher()
            if self._is_draining.is_set():
                dispatcher.stop_taking()
            self._consumer = await unless_set(self._is_draining, self._start(dispatcher))
            if self._consumer is not None:
                async with (
                    self._loop_monitor.watching(),
                    app.tasks.dependencies.working(),
                    ServiceGroup() as services,
                ):
                    for name, service, grace in self._services(self._consumer, dispatcher):
                        await services.start(service, name, grace=grace)
                    await self._serve(self._consumer, dispatcher)
        finally:
            for executor in self._executors.values():
                await executor.aclose()
            if self._dispatcher is not None:
                await self._dispatcher.aclose()
            await self._records.aclose()
            await app.aclose()

    def _services(self, consumer: Consumer, dispatcher: Dispatcher) -> Iterator[tuple[str, Service, float]]:
        """Yield the services that live while the worker consumes, each with the seconds that it has to end."""
        app, config = self._app, self._config
        session = app.sessions.current()
        if (relay := session.delay_relay(app.producer.queue)) is not None:
            yield "relay of delayed jobs", relay, _TIME_TO_SETTLE
        if self._long_runs is not None:
            queues = [name for queue in self._queues for name in queue.physical]
            self._long_runs.attach(consumer, dispatcher.slots, dispatcher.reports, queues)
            yield "guard of long runs", self._long_runs, _TIME_TO_SETTLE
        if self._records.recorder is not None:
            yield "recorder of runs", self._records.recorder, _TIME_TO_SETTLE
        if isinstance(session.broker, Broadcasting):
            if config.events != "off":
                self._events = EventPublisher(
                    session.broker,
                    self.stats,
                    name=self.name,
                    status=self.status,
                    clock=app.sessions.clock,
                    is_permanent=config.events == "on",
                    words=self._records.error_words(),
                )
                yield "event publisher", self._events, _TIME_TO_END
            self._tasks = TaskAnnouncer(session.broker, app, worker=self.name)
            yield "announcer of tasks", self._tasks, _TIME_TO_END
            watch = None if self._events is None else self._events.watch
            commands = CommandService(session.broker, self, watch=watch, obeys=config.control)
            yield "command service", commands, _TIME_TO_SETTLE
        if self._cancellations is not None:
            yield "watch of cancellations", self._cancellations, _TIME_TO_END
        if self._pauses is not None:
            self._pauses.attach(consumer, dispatcher.slots)
            yield "watch of paused queues", self._pauses, _TIME_TO_SETTLE
        if config.prefetch is None:
            tuner = PrefetchTuner(consumer, dispatcher.slots, self._queues, self.stats)
            yield "prefetch tuner", tuner, _TIME_TO_END

    def _new_dispatcher(self) -> Dispatcher:
        stores = self._app.sessions.current().stores
        self._long_runs = LongRunGuard(
            self._app, stores.leases, self.stats, worker=self.name, seconds=self._config.lease
        )
        broker = self._app.sessions.current().broker
        if stores.schedules is not None:
            self._pauses = QueuePauses(StatePauses(stores.schedules), self._queues)
        elif isinstance(broker, Broadcasting):
            source = AnnouncedPauses(broker, has_store=self._app.sessions.store_url is not None)
            self._pauses = QueuePauses(source, self._queues)
        if stores.revocations is not None:
            self._cancellations = Cancellations(stores.revocations, self._app.sessions.clock, self._cancel)
        self._records.begin(self._executors)
        return Dispatcher(
            self._app,
            self._queues,
            self._config,
            self._executors,
            worker=self.name,
            stats=self.stats,
            resources=self._resources,
            cancelled=None if self._cancellations is None else self._cancellations.reason,
            long_runs=self._long_runs,
            guards=build_guards(self._app, self._config, worker=self.name),
            logs=self._records.lines,
            redactor=self._records.redactor,
        )

    def _cancel(self, job_id: str, reason: str) -> None:
        if self._dispatcher is not None:
            self._dispatcher.cancel(job_id, reason)

    async def _start(self, dispatcher: Dispatcher) -> Consumer:
        return await subscribe(
            self._app,
            self._queues,
            dispatcher.deliver,
            prefetch=self._config.effective_prefetch,
            long_runs=self._long_runs,
            cancellations=self._cancellations,
            pauses=self._pauses,
        )

    async def _serve(self, consumer: Consumer, dispatcher: Dispatcher) -> None:
        self.is_ready.set()
        try:
            if self._config.burst:
                await self._until_idle(self._app.sessions.current().broker, dispatcher)
            await self._is_draining.wait()
        except asyncio.CancelledError:
            self.requeue_now()
            raise
        finally:
            await self._drain(consumer, dispatcher)

    async def _until_idle(self, broker: Broker, dispatcher: Dispatcher) -> None:
        """Return once several checks found nothing to do, or the worker is stopped; wait while it is paused."""
        idle, pauses = 0, self._pauses
        while idle < _BURST_LOOKS and not self._is_draining.is_set():
            await pause(self._is_draining, _BURST_LOOK)
            active = [queue for queue in self._queues if pauses is None or not pauses.is_paused(queue)]
            names = [name for queue in active for name in queue.physical]
            try:
                is_idle = not dispatcher.is_busy and not any(entry.ready for entry in await broker.stats(names))
            except BrokerUnavailable:
                is_idle = False
            is_idle = is_idle and not dispatcher.is_busy and self._state != "paused"
            idle = idle + 1 if is_idle else 0
        self.drain()

    async def _drain(self, consumer: Consumer, dispatcher: Dispatcher) -> None:
        dispatcher.stop_taking()
        await consumer.stop()
        dispatcher.give_back()
        if not dispatcher.is_finished:
            _log.info("draining: %d running, %g s of grace", dispatcher.slots.running, self._grace)
            try:
                await unless_set(self._is_hurried, dispatcher.wait_finished(), timeout=self._grace)
            finally:
                if not dispatcher.is_finished:
                    await dispatcher.interrupt()
                    self.left_behind = dispatcher.left_behind
