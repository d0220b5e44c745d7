"""A scheduler that dies at each step of its loop, on PostgreSQL and SQLite, and one that wakes up after its lease.

One that dies here reaches neither store nor broker any more from that step on, and the broker takes back what it has
in hand: as after SIGKILL. Its leases are ended by hand, so that nobody waits for them.
"""

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import Broker, BrokerOptions, Delivery, Outgoing, Subscription
from taskmq.contracts.jobs import JobRecord, JobStore, NewJob, Pick, slot_key
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StoreUnavailable
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.reports import Report, encode_reports
from taskmq.model.states import JobState
from taskmq.model.topology import WorkQueue, jobs_queue
from taskmq.scheduler import Scheduler
from taskmq.testing import FlakyBroker
from taskmq_local import forget_memory, open_memory_broker
from taskmq_sql import open_job_store
from tests.servers import PostgreSQL
from tests.unit.app_kit import OneSession

_PATIENCE: Final = 30.0
_JOBS: Final = 5

# Where it dies: what was done last, and how often each job's invitation is published altogether.
_STEPS: Final = {
    "its jobs are dispatched and not published": ("after dispatch", 1),
    "its jobs are published and not confirmed": ("after publish", 2),
    "its jobs are confirmed and the store is not told": ("before confirm", 2),
    "its batch is confirmed in the store": ("after confirm", 1),
    "reports have come and are not applied": ("before apply", 1),
    "reports are applied and not acknowledged": ("after apply", 1),
    "all jobs have ended and the batch is not forgotten": ("before forget", 1),
}


@dataclass
class Database:
    """Where jobs are kept, and how a test looks at it from outside."""

    url: str
    sql: Callable[[str], str]
    expire: str
    batches: str

    @property
    def confirmed(self) -> str:
        return f"{self.batches} where confirmed"

    def open(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="deaths"))


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgresql":
        server: PostgreSQL = request.getfixturevalue("postgres_server")
        url: str = request.getfixturevalue("job_store_url")
        yield Database(
            url,
            lambda statement: server.sql(statement, url=url),
            "update taskmq.lease set expires = 0",
            "select count(*) from taskmq.dispatch_batch",
        )
        return
    path = tmp_path / "jobs.db"

    def sql(statement: str) -> str:
        with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
            row = connection.execute(statement).fetchone()
            return "" if row is None else str(row[0])

    yield Database(f"sqlite:///{path}", sql, "update lease set until = 0", "select count(*) from dispatch_batch")


class Life:
    """How long a scheduler lives: it gets to a step, and no further."""

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
        """What a publish waits for of which no confirm comes."""
        self.is_there.set()
        await self.is_over.wait()
        raise asyncio.CancelledError


class MortalStore:
    """A store, or a part of one, whose calls pass by a `Life`."""

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
    """A broker of whose confirms a scheduler hears nothing any more at its last step."""

    def __init__(self, inner: Broker, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        answer = super().publish(message, timeout=timeout)
        return asyncio.ensure_future(self._life.confirm()) if self._life.step == "after publish" else answer


@dataclass
class Stage:
    """A broker, a store, and a worker that takes invitations and reports successes when it is told to."""

    name: str
    database: Database
    store: JobStore
    broker: Broker
    invitations: list[Envelope] = field(default_factory=list[Envelope])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    def start(self, step: str = "") -> "Process":
        return Process(self, Life(step))

    async def consume(self) -> None:
        def take(delivery: Delivery) -> None:
            self.invitations.append(decode_envelope(delivery.body))
            self.deliveries.append(delivery)

        await self.broker.declare([WorkQueue("work")])
        await self.broker.consume([Subscription(jobs_queue("work"), 1000)], take)

    async def submit(self) -> list[str]:
        clock = SystemClock()
        ids = [new_job_id(clock.now_ms(), uuid4().bytes) for _ in range(_JOBS)]
        bodies = [encode_envelope(Envelope(id=job_id, task="t")) for job_id in ids]
        jobs = [
            NewJob(id=job_id, task="t", queue="work", body=body) for job_id, body in zip(ids, bodies, strict=True)
        ]
        await self.store.submit(jobs)
        return ids

    async def finish(self) -> None:
        """Report everything in hand, each invitation with its token, and acknowledge it."""
        taken, self.deliveries = self.deliveries, []
        for delivery in taken:
            invitation = decode_envelope(delivery.body).store
            assert invitation is not None
            report = Report(id=invitation.id, token=invitation.token, kind="succeeded", worker="w")
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
        """All of them, once each has ended; until then the worker goes on."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                await self.finish()
                jobs = await self.read(ids)
                if all(job.state.is_final for job in jobs):
                    return jobs
                await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not holds():
                await asyncio.sleep(0.01)


class Process:
    """A scheduler with connections of its own."""

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
        OneSession(app, lambda: session)
        self.scheduler = Scheduler(app)
        self.task = asyncio.create_task(self.scheduler.run())

    async def die(self) -> None:
        """Once it is at its last step: nothing that it would do in the end is done."""
        async with asyncio.timeout(_PATIENCE):
            await self.life.is_there.wait()
        self.life.is_over.set()
        # First the broker: what it has in hand goes back, and nothing is settled any more.
        await self._broker.aclose()
        self.task.cancel()
        await asyncio.wait({self.task})
        await self._store.aclose()
        self._stage.database.sql(self._stage.database.expire)

    async def stop(self) -> None:
        self.scheduler.stop()
        await self.task


@asynccontextmanager
async def _stage(database: Database) -> AsyncIterator[Stage]:
    name = f"deaths-{uuid4()}"
    store = database.open()
    broker = open_memory_broker(f"memory://{name}", BrokerOptions(name="worker"))
    try:
        yield Stage(name, database, store, broker)
    finally:
        await store.aclose()
        await broker.aclose()
        forget_memory(name)


@pytest.mark.parametrize("where", _STEPS)
def test_a_scheduler_that_dies_costs_no_job_and_no_second_end(database: Database, where: str) -> None:
    step, published = _STEPS[where]

    async def main() -> None:
        async with _stage(database) as stage:
            await stage.consume()
            ids = await stage.submit()
            first = stage.start(step)
            if not step.endswith(("dispatch", "publish", "confirm")):
                await stage.until(lambda: database.sql(database.confirmed) == "1")
                await stage.finish()
            await first.die()

            second = stage.start()
            jobs = await stage.until_ended(ids)
            await stage.until(lambda: database.sql(database.batches) == "0")

            # Every job was dispatched once, as its first attempt, and has one accepted end: versions 1, 2, 3.
            assert [job.state for job in jobs] == [JobState.SUCCEEDED] * _JOBS
            assert {(job.token >> 32, job.attempt, job.version) for job in jobs} == {(1, 1, 3)}
            assert len(stage.invitations) == published * _JOBS
            tokens = {each.store.token for each in stage.invitations if each.store is not None}
            assert tokens == {job.token for job in jobs}
            await second.stop()

    asyncio.run(main())


@pytest.mark.parametrize("step", ["after take_over", "before take_over"])
def test_the_next_holder_may_die_in_the_middle_of_taking_over(database: Database, step: str) -> None:
    async def main() -> None:
        async with _stage(database) as stage:
            await stage.consume()
            ids = await stage.submit()
            first = stage.start("after dispatch")
            await first.die()
            second = stage.start(step)
            await second.die()

            third = stage.start()
            jobs = await stage.until_ended(ids)

            assert {(job.state, job.token >> 32, job.version) for job in jobs} == {(JobState.SUCCEEDED, 1, 3)}
            assert len(stage.invitations) == _JOBS
            await third.stop()

    asyncio.run(main())


def test_a_holder_that_wakes_up_late_is_refused_by_its_epoch(database: Database) -> None:
    async def main() -> None:
        async with _stage(database) as stage:
            dispatching = stage.store.dispatching
            slot, key = dispatching.slot_of("work"), slot_key(dispatching.slot_of("work"))
            late = await dispatching.leases.acquire(key, owner="late", seconds=5)
            assert isinstance(late, int)
            await stage.submit()
            (lane,) = await dispatching.lanes(slot)
            first = await dispatching.dispatch(slot, late, [Pick(lane, 1)])
            assert first is not None
            # It stands still for longer than its lease, and another one takes the slot.
            database.sql(database.expire)
            other = database.open()
            present = await other.dispatching.leases.acquire(key, owner="present", seconds=5)
            assert present == late + 1
            (taken,) = await other.dispatching.take_over(slot, present)

            assert not await dispatching.leases.renew(key, token=late, seconds=5)
            assert await dispatching.dispatch(slot, late, [Pick(lane, 100)]) is None
            assert await dispatching.take_over(slot, late) == []
            second = await other.dispatching.dispatch(slot, present, [Pick(lane, 100)])

            assert second is not None
            # What was dispatched in time is the present holder's, with the same token; the rest it dispatches itself.
            assert taken.jobs == first.jobs
            assert len(second.jobs) == _JOBS - 1
            assert not {job.id for job in first.jobs} & {job.id for job in second.jobs}
            await other.aclose()

    asyncio.run(main())
