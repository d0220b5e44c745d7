"""Schedulers on one store and one broker, on a loop with virtual time, and a worker that a test controls."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import Broker, BrokerOptions, Delivery, Outgoing, Subscription
from taskmq.contracts.broker_abilities import Listening
from taskmq.contracts.jobs import PARTITIONS, JobRecord, NewJob, partition_key, partition_of, ready_topic
from taskmq.durable.service import Service
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.reports import Report, ReportKind, encode_reports
from taskmq.model.retry import RunOptions
from taskmq.model.states import JobState
from taskmq.model.telemetry.events import WorkerEvent, encode_batch, worker_topic
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.topology import WorkQueue, jobs_queue
from taskmq.scheduler import AlertSettings, Scheduler
from taskmq.testing import FlakyBroker
from taskmq.testing.broker_suite.case import peek
from taskmq_local import forget_memory, open_memory_broker, open_memory_state
from taskmq_local.memory.broker import MemoryBroker
from taskmq_sql.jobs.codes import STATES
from tests.unit.app_kit import use_session
from tests.unit.store_kit import Database, StagedStore, at_once
from tests.virtual_time import run

START = 1_700_000_000_000


class LoopClock:
    """The clock of a loop with virtual time."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return START + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def since(self, began: float) -> float:
        """Return the seconds since a reading of `monotonic`; work takes no time."""
        return self.monotonic() - began

    async def sleep_until(self, instant_ms: int) -> None:
        await asyncio.sleep(max(instant_ms - self.now_ms(), 0) / 1000)


class HeardBroker(FlakyBroker):
    """A `FlakyBroker` with broadcasts, which never fail.

    Attributes:
        is_deaf: if True, listeners receive nothing and are not told.
    """

    def __init__(self, inner: MemoryBroker) -> None:
        super().__init__(inner)
        self._heard = inner
        self.is_deaf = False

    def drop_publishes(self) -> None:
        """Drop the waiting publishes: they never reach the broker."""
        if self._hanging is not None:
            self._hanging.clear()

    def announce(self, topic: str, body: bytes) -> bool:
        return self._heard.announce(topic, body)

    async def listen(
        self, patterns: Collection[str], receive: Callable[[str, bytes], None], **options: Any
    ) -> Listening:
        def hear(topic: str, body: bytes) -> None:
            if not self.is_deaf:
                receive(topic, body)

        return await self._heard.listen(patterns, hear)


@dataclass
class Process:
    """A scheduler with its own connections.

    Attributes:
        store: set its `is_reachable` for an outage that only this process sees.
        broker: fails as configured.
    """

    app: TaskMQ
    scheduler: Scheduler
    store: StagedStore
    broker: HeardBroker
    task: "asyncio.Task[None]"

    async def stop(self) -> None:
        self.scheduler.stop()
        await asyncio.wait({self.task})
        self.task.result()

    async def kill(self) -> None:
        """Kill the process: its store and broker fail first, so nothing of its shutdown takes effect."""
        self.store.is_reachable = False
        self.broker.drop_publishes()
        self.task.cancel()
        await asyncio.wait({self.task})


@dataclass
class Player:
    """A worker that consumes invitations of a queue and reports as the test says."""

    broker: Broker
    queue: str
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    has_more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def envelopes(self) -> list[Envelope]:
        return [decode_envelope(each.body) for each in self.deliveries]

    def take(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.has_more.set()

    async def has(self, count: int, *, within: float = 60.0) -> None:
        """Wait until it holds that many invitations."""
        async with asyncio.timeout(within):
            while len(self.deliveries) < count:
                self.has_more.clear()
                await self.has_more.wait()

    async def report(self, envelope: Envelope, kind: ReportKind = "succeeded", **fields: Any) -> None:
        """Report one invitation without acknowledging it."""
        assert envelope.store is not None
        fields = {"worker": "player", "started": START, "ran": 1, **fields}
        report = Report(
            id=envelope.store.id,
            token=envelope.store.token,
            proof=envelope.store.proof,
            attempt=envelope.attempt,
            kind=kind,
            **fields,
        )
        await self.send(envelope.store.reports, report)

    async def send(self, queue: str, *reports: Report) -> None:
        for body in encode_reports(reports):
            await self.broker.publish(
                Outgoing(queue=queue, body=body, content_type=JSON, job_id="", task="taskmq.reports"), timeout=5
            )

    async def finish(self, kind: ReportKind = "succeeded", **fields: Any) -> None:
        """Report and acknowledge every held invitation; return the redelivered ones to the scheduler."""
        taken, self.deliveries = self.deliveries, []
        for delivery in taken:
            if delivery.redelivered:
                await self.report(decode_envelope(delivery.body), "interrupted", redelivered=True, started=None)
            else:
                await self.report(decode_envelope(delivery.body), kind, **fields)
            delivery.ack()

    async def play(self) -> None:
        """Report every invitation as a success from now on."""
        while True:
            await self.has_more.wait()
            # Invitations of one millisecond are reported together.
            await asyncio.sleep(0.001)
            self.has_more.clear()
            await self.finish(content_type=JSON, result=b"1")


@dataclass
class Stage:
    """The objects shared by the processes of a test."""

    name: str
    clock: LoopClock
    broker: MemoryBroker
    database: Database
    processes: list[Process] = field(default_factory=list[Process])
    define: Callable[[TaskMQ], None] = lambda _: None
    queues: Sequence[WorkQueue] = ()
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    tasks: list["asyncio.Task[None]"] = field(default_factory=list["asyncio.Task[None]"])

    @property
    def store(self) -> StagedStore:
        """Return the store as seen from outside the schedulers."""
        return StagedStore(self.database, clock=self.clock)

    @property
    def session(self) -> Session:
        """Open connections of an outsider, without a state."""
        return Session(self.broker, None, send_timeout=5.0, store=self.store, clock=self.clock)

    def start(
        self,
        *,
        drains: bool = False,
        store: StagedStore | None = None,
        has_state: bool = True,
        counts_runs: bool = False,
        alerts: AlertSettings | None = None,
        name: str = "shop",
    ) -> Process:
        """Start one more scheduler of the app of that name."""
        app = TaskMQ(f"memory://{self.name}", name=name, queues=self.queues)
        self.define(app)
        app.sessions.clock = self.clock
        options = BrokerOptions(name="scheduler", clock=self.clock)
        broker = HeardBroker(open_memory_broker(f"memory://{self.name}", options))
        state = open_memory_state(f"memory://{self.name}", options) if has_state else None
        store = store or self.store
        session = Session(broker, state, send_timeout=5.0, store=store, clock=self.clock)
        use_session(app, lambda: session)
        scheduler = Scheduler(app, drains=drains, counts_runs=counts_runs, alerts=alerts)
        process = Process(app, scheduler, store, broker, asyncio.create_task(scheduler.run()))
        self.processes.append(process)
        return process

    @asynccontextmanager
    async def running(self, service: Service, *, is_killed: bool = False) -> AsyncGenerator[None]:
        """Run one component of a scheduler until the block ends; then stop or kill it."""
        task = asyncio.create_task(service.run())
        try:
            yield
        finally:
            if is_killed:
                task.cancel()
            else:
                service.stop()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def player(self, queue: str = "work", *, prefetch: int = 1000) -> Player:
        """Return a worker of a queue once the queue exists."""
        broker = open_memory_broker(f"memory://{self.name}", BrokerOptions(name="worker", clock=self.clock))
        player = Player(broker, queue)
        await until(lambda: _exists(broker, jobs_queue(queue)))
        await broker.consume([Subscription(jobs_queue(queue), prefetch)], player.take)
        return player

    async def player_of_declared(self, queue: str = "work") -> Player:
        """Declare an unused queue and return a worker of it."""
        await self.broker.declare([WorkQueue(queue)])
        return await self.player(queue)

    def plays(self, player: Player) -> None:
        """Let the worker succeed with every job for the rest of the test."""
        self.tasks.append(asyncio.create_task(player.play()))

    async def playing(self, queue: str = "work") -> None:
        """Start a worker that succeeds with every job for the rest of the test."""

        async def work() -> None:
            await (await self.player(queue)).play()

        self.tasks.append(asyncio.create_task(work()))

    async def submit(
        self,
        count: int = 1,
        *,
        queue: str = "work",
        task: str = "t",
        announced: bool = False,
        run: RunOptions | None = None,
        **fields: Any,
    ) -> list[str]:
        """Submit jobs; return their ids."""
        jobs: list[NewJob] = []
        for _ in range(count):
            # In the order of their submission, also within a millisecond.
            job_id = new_job_id(self.clock.now_ms(), next(self.numbers).to_bytes(10, "big"))
            body = encode_envelope(Envelope(id=job_id, task=task, run=run))
            jobs.append(NewJob(id=job_id, task=task, queue=queue, body=body, **fields))
        await self.store.submit(jobs)
        if announced:
            self.broker.announce(ready_topic(self.partition_of(queue)), b"")
        return [job.id for job in jobs]

    def partition_of(self, queue: str) -> int:
        """Return the partition of a queue."""
        return partition_of(queue, self.database.partitions)

    def job(self, job_id: str) -> JobRecord:
        return self.database.job(job_id)

    def states(self) -> dict[JobState, int]:
        counts = self.database.ask(
            "SELECT state, count(*) FROM (SELECT state FROM job UNION ALL SELECT state FROM job_history) GROUP BY 1"
        )
        return {STATES[code]: count for code, count in counts}

    def holders(self) -> set[str]:
        """Return the holders of partitions."""
        find = self.store.dispatching.leases.find
        leases = [at_once(find(partition_key(partition))) for partition in range(self.database.partitions)]
        return {lease.owner for lease in leases if lease is not None}

    def holds_all(self, process: Process) -> bool:
        """Return whether this scheduler holds all partitions."""
        return len(process.scheduler.status().partitions) == self.database.partitions

    def batches(self) -> int:
        """Return the number of batches in the store."""
        return int(self.database.ask("SELECT count(*) FROM dispatch_batch")[0][0])

    def worker_says(self, event: str = "beat", *, name: str = "player", **fields: Any) -> None:
        """Publish a worker's status."""
        told = worker_event(event, name=name, **fields)
        self.broker.announce(worker_topic(event), encode_batch(name, [told], dropped=0))

    async def pass_by(self, seconds: float) -> None:
        """Let that time pass."""
        await asyncio.sleep(seconds)

    async def all_ended(self) -> None:
        await until(lambda: self.database.live == 0, within=600)

    async def parked_messages(self) -> list[tuple[str, Any]]:
        """Return reason and body of the parked messages."""
        async with peek(self.broker, "taskmq.parking", limit=100) as found:
            return [(str(each.headers["x-taskmq-reason"]), each.body) for each in found]


def worker_event(event: str = "beat", *, name: str = "player", at: int = 0, **fields: Any) -> WorkerEvent:
    """Return a worker event."""
    known: dict[str, Any] = dict.fromkeys(
        ("running", "backlog", "ended", "abandoned", "memory", "descriptors", "started"), 0
    )
    known |= {"host": "h", "pid": 1, "version": "1", "app": "shop", "queues": ["work"], "state": "running"}
    status = WorkerStatus(**{**known, "name": name, "slots": 1, "loop_lag": 0.0, **fields})
    return WorkerEvent(event=event, number=1, at=at, status=status, worker=name)


async def until(condition: Callable[[], "bool | Coroutine[Any, Any, bool]"], *, within: float = 60.0) -> None:
    """Wait until the condition holds; the loop's time advances meanwhile."""
    step = 0.002
    async with asyncio.timeout(within):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(step)
            # Polling dominates the cost of a test that lets minutes pass.
            step = min(step * 1.05, 0.1)


async def _exists(broker: Broker, queue: str) -> bool:
    return bool(await broker.stats([queue]))


def play(
    test: Callable[[Stage], Coroutine[Any, Any, None]],
    define: Callable[[TaskMQ], None] | None = None,
    *,
    queues: Sequence[WorkQueue] = (),
    partitions: int = PARTITIONS,
) -> None:
    """Run a test; no asyncio task may be left afterwards."""

    async def main() -> None:
        name = f"scheduler-{uuid4()}"
        clock = LoopClock()
        options = BrokerOptions(clock=clock)
        broker = open_memory_broker(f"memory://{name}", options)
        stage = Stage(name, clock, broker, Database(clock, partitions=partitions))
        stage.queues = queues
        if define is not None:
            stage.define = define
        await stage.broker.declare([])
        try:
            await test(stage)
        finally:
            for task in stage.tasks:
                task.cancel()
            for process in stage.processes:
                if not process.task.done():
                    process.scheduler.stop()
                    process.scheduler.stop()
            if pending := {*stage.tasks, *(process.task for process in stage.processes)}:
                await asyncio.wait(pending)
            forget_memory(name)
        for process in stage.processes:
            if not process.task.cancelled():
                process.task.result()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    run(main())


play_one = partial(play, partitions=1)
"""Run a test on one partition: in tests that let minutes pass, polls of idle partitions are most of the cost."""
