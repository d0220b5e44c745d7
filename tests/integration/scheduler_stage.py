"""Schedulers on a database and a broker in memory that die on request of a test, and a worker that a test controls.

A dead one reaches neither store nor broker from that step on, and the broker requeues its unacked messages: as after
SIGKILL. The test ends its leases, so that no test waits for them.
"""

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncGenerator, Callable, Container
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import Broker, BrokerOptions, Delivery, Outgoing, Subscription
from taskmq.contracts.jobs import JobRecord, JobStore, NewJob, Upgradable
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StoreUnavailable
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.reports import Report, encode_reports
from taskmq.model.topology import WorkQueue, jobs_queue
from taskmq.scheduler import Scheduler
from taskmq.testing import FlakyBroker
from taskmq_local import forget_memory, open_memory_broker
from taskmq_sql import open_job_store
from tests.servers import PostgreSQL
from tests.servers.waiting import until
from tests.unit.app_kit import use_session

PATIENCE: Final = 30.0
JOBS: Final = 5


@dataclass
class Database:
    """A database of jobs, and a test's access to it."""

    url: str
    sql: Callable[[str], str]
    expire: str
    batches: str

    @property
    def confirmed(self) -> str:
        return f"{self.batches} where confirmed"

    def open(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="deaths"))

    async def upgrade(self) -> None:
        """Create the tables."""
        store = self.open()
        assert isinstance(store, Upgradable)
        await store.upgrade()
        await store.aclose()


def postgres_database(server: PostgreSQL, url: str) -> Database:
    return Database(
        url,
        lambda statement: server.sql(statement, url=url),
        "update taskmq.lease set expires = 0",
        "select count(*) from taskmq.dispatch_batch",
    )


def file_database(path: Path) -> Database:
    def sql(statement: str) -> str:
        with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
            row = connection.execute(statement).fetchone()
            return "" if row is None else str(row[0])

    return Database(f"sqlite:///{path}", sql, "update lease set expires = 0", "select count(*) from dispatch_batch")


class Life:
    """The lifetime of a scheduler: it reaches a step, and no further."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.is_there = asyncio.Event()
        self.is_over = asyncio.Event()

    async def pass_by(self, step: str) -> None:
        if step == self.step:
            self.is_there.set()
            await self.is_over.wait()
        if self.is_over.is_set():
            raise StoreUnavailable("the dead reach nothing")

    async def confirm(self) -> None:
        """Wait for a confirm that never comes."""
        self.is_there.set()
        await self.is_over.wait()
        raise asyncio.CancelledError


class MortalStore:
    """A store, or a component of one, whose calls pass through a `Life`."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("dispatching", "leases"):
            return MortalStore(found, self._life)
        if not inspect.iscoroutinefunction(found) or name == "aclose":
            return found

        async def call(*args: object, **kwargs: object) -> object:
            await self._life.pass_by(f"before {name}")
            answer = await found(*args, **kwargs)
            await self._life.pass_by(f"after {name}")
            return answer

        return call


class MortalBroker(FlakyBroker):
    """A broker whose confirms no longer reach the scheduler after its last step."""

    def __init__(self, inner: Broker, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        answer = super().publish(message, timeout=timeout)
        return asyncio.ensure_future(self._life.confirm()) if self._life.step == "after publish" else answer


@dataclass
class Stage:
    """A broker, a store, and a worker that consumes invitations and reports successes on request."""

    name: str
    database: Database
    store: JobStore
    broker: Broker
    invitations: list[Envelope] = field(default_factory=list[Envelope])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    def start(self, step: str = "") -> "Process":
        return Process(self, Life(step))

    async def move_to(self, database: Database) -> None:
        """Use this store from now on."""
        await self.store.aclose()
        self.database, self.store = database, database.open()
        # The holders of its partitions at the time of the copy are gone.
        database.sql(database.expire)

    async def consume(self) -> None:
        """Consume new messages in the queue of invitations from now on."""

        def take(delivery: Delivery) -> None:
            self.invitations.append(decode_envelope(delivery.body))
            self.deliveries.append(delivery)

        await self.broker.declare([WorkQueue("work")])
        await self.broker.consume([Subscription(jobs_queue("work"), 1000)], take)

    async def submit(self, count: int = JOBS) -> list[str]:
        """Submit jobs; return their ids."""
        clock = SystemClock()
        ids = [new_job_id(clock.now_ms(), uuid4().bytes) for _ in range(count)]
        bodies = [encode_envelope(Envelope(id=job_id, task="t")) for job_id in ids]
        jobs = [
            NewJob(id=job_id, task="t", queue="work", body=body) for job_id, body in zip(ids, bodies, strict=True)
        ]
        await self.store.submit(jobs)
        return ids

    async def finish(self, *, but: Container[str] = ()) -> None:
        """Report all held invitations but these, each with its token, and acknowledge them."""
        names = {id(each): decode_envelope(each.body).id for each in self.deliveries}
        taken = [each for each in self.deliveries if names[id(each)] not in but]
        self.deliveries = [each for each in self.deliveries if names[id(each)] in but]
        for delivery in taken:
            invitation = decode_envelope(delivery.body).store
            assert invitation is not None
            report = Report(
                id=invitation.id, token=invitation.token, proof=invitation.proof, kind="succeeded", worker="w"
            )
            (body,) = encode_reports([report])
            message = Outgoing(
                queue=invitation.reports, body=body, content_type=JSON, job_id="", task="taskmq.reports"
            )
            await self.broker.publish(message, timeout=5)
            delivery.ack()

    async def read(self, ids: list[str]) -> list[JobRecord]:
        found = [await self.store.get(job_id) for job_id in ids]
        return [job for job in found if job is not None]

    async def until_ended(self, ids: list[str]) -> list[JobRecord]:
        """Keep the worker going until each job has ended; return all of them."""

        async def have_ended() -> bool:
            await self.finish()
            return all(job.state.is_final for job in await self.read(ids))

        await until(have_ended)
        return await self.read(ids)

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(holds)


class Process:
    """A scheduler with its own connections."""

    def __init__(self, stage: Stage, life: Life) -> None:
        self.life = life
        self._stage = stage
        self._store = stage.database.open()
        url = f"memory://{stage.name}"
        self._broker = open_memory_broker(url, BrokerOptions(name="scheduler"))
        app = TaskMQ(url, name="shop")
        session = Session(
            MortalBroker(self._broker, life),
            None,
            send_timeout=5.0,
            store=cast("JobStore", MortalStore(self._store, life)),
        )
        use_session(app, lambda: session)
        self.scheduler = Scheduler(app)
        self.task = asyncio.create_task(self.scheduler.run())

    async def die(self) -> None:
        """Die at its last step: nothing of its shutdown takes effect."""
        async with asyncio.timeout(PATIENCE):
            await self.life.is_there.wait()
        self.life.is_over.set()
        # First the broker: its unacked messages are requeued, and nothing is settled any more.
        await self._broker.aclose()
        self.task.cancel()
        await asyncio.wait({self.task})
        await self._store.aclose()
        self._stage.database.sql(self._stage.database.expire)

    async def stop(self) -> None:
        self.scheduler.stop()
        await self.task


@asynccontextmanager
async def open_stage(database: Database) -> AsyncGenerator[Stage, None]:
    name = f"deaths-{uuid4()}"
    broker = open_memory_broker(f"memory://{name}", BrokerOptions(name="worker"))
    stage = Stage(name, database, database.open(), broker)
    try:
        yield stage
    finally:
        await stage.store.aclose()
        await broker.aclose()
        forget_memory(name)
