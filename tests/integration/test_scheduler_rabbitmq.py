"""Schedulers on RabbitMQ: two at once, a dying one, and messages dropped by the broker itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pika.exceptions import AMQPError  # type: ignore[import-untyped]

from taskmq import TaskMQ, WorkQueue
from taskmq.client.plugins import open_broker
from taskmq.client.session import Session
from taskmq.contracts.broker import Broker, BrokerOptions, Delivery, Outgoing, Subscription
from taskmq.contracts.jobs import JobDetail, NewJob, partition_of
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.headers import OWNER
from taskmq.model.jobs.reports import Report, encode_reports
from taskmq.model.states import JobState
from taskmq.model.topology import jobs_queue
from taskmq.scheduler import Scheduler
from tests.integration.raw_rabbitmq import Raw
from tests.servers import eventually
from tests.servers.waiting import until
from tests.unit.app_kit import use_session
from tests.unit.store_kit import Database, StagedStore

pytestmark = pytest.mark.rabbitmq

_QUEUE = WorkQueue("work", delivery_limit=2)


class _Process:
    """A scheduler with its own connection and its own view of the store."""

    def __init__(self, url: str, database: Database) -> None:
        app = TaskMQ(url, name="shop", queues=[_QUEUE])
        self.store = StagedStore(database, clock=SystemClock())
        session = Session(
            open_broker(url, BrokerOptions(name="scheduler")), None, send_timeout=10.0, store=self.store
        )
        use_session(app, lambda: session)
        self.scheduler = Scheduler(app)
        self.task = asyncio.create_task(self.scheduler.run())

    async def kill(self) -> None:
        """Cut it off from the store, so that none of its work is completed."""
        self.store.is_reachable = False
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def _running(*processes: _Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.scheduler.stop()
        await asyncio.wait({process.task for process in processes})


async def _consume(broker: Broker, deliver: Callable[[Delivery], None]) -> None:
    """Consume the queue of invitations once it exists."""

    async def exists() -> bool:
        return bool(await broker.stats([jobs_queue("work")]))

    # A consumer of a missing queue looks again only after 30 s.
    await until(exists)
    await broker.consume([Subscription(jobs_queue("work"), 200, is_punctual=True)], deliver)


def _jobs(count: int) -> Iterator[NewJob]:
    for _ in range(count):
        job_id = new_job_id(SystemClock().now_ms(), uuid4().bytes)
        yield NewJob(id=job_id, task="t", queue="work", body=encode_envelope(Envelope(id=job_id, task="t")))


async def _succeed(broker: Broker, delivery: Delivery) -> None:
    """Report a success, and acknowledge the invitation."""
    envelope = decode_envelope(delivery.body)
    assert envelope.store is not None
    report = Report(id=envelope.store.id, token=envelope.store.token, attempt=envelope.attempt, kind="succeeded")
    (body,) = encode_reports([report])
    message = Outgoing(queue=envelope.store.reports, body=body, content_type=JSON, job_id="", task="taskmq.reports")
    await broker.publish(message, timeout=10)
    delivery.ack()


@pytest.mark.real_time
async def test_one_of_two_schedulers_dies_halfway_and_every_job_has_one_accepted_end(amqp_url: str) -> None:
    database = Database()
    broker = open_broker(amqp_url, BrokerOptions(name="worker"))
    first, second = _Process(amqp_url, database), _Process(amqp_url, database)
    reporting: set[asyncio.Task[None]] = set()

    def deliver(delivery: Delivery) -> None:
        reporting.add(asyncio.create_task(_succeed(broker, delivery)))

    async with _running(second):
        await until(lambda: len(second.scheduler.status().partitions) == 4)
        holder = first if partition_of("work") in first.scheduler.status().partitions else second
        # The dying one is the one that dispatches.
        victim, heir = (first, second) if holder is first else (second, first)
        async with _running(heir):
            await victim.store.submit(list(_jobs(1_000)))
            await _consume(broker, deliver)
            await until(lambda: database.ask("SELECT count(*) FROM job_history")[0][0] > 100)
            await victim.kill()

            await until(lambda: database.live == 0)

            assert {job.state for job in database.jobs.values()} == {JobState.SUCCEEDED}
            # Each is dispatched once: calls in progress at its scheduler's death kept their token.
            assert {job.token >> 32 for job in database.jobs.values()} == {1}
            await until(lambda: heir.scheduler.status().in_flight == {})
    await asyncio.gather(*reporting)
    await broker.aclose()


@pytest.mark.real_time
async def test_the_message_of_a_stored_job_names_its_submitter(amqp_url: str) -> None:
    process = _Process(amqp_url, Database())
    broker = open_broker(amqp_url, BrokerOptions(name="worker"))
    (job,) = _jobs(1)
    found: list[object] = []
    reporting: set[asyncio.Task[None]] = set()

    def deliver(delivery: Delivery) -> None:
        found.append(delivery.headers.get(OWNER))
        reporting.add(asyncio.create_task(_succeed(broker, delivery)))

    async with _running(process):
        await process.store.submit([replace(job, detail=JobDetail(owner="ann"))])
        await _consume(broker, deliver)
        await until(lambda: found == ["ann"])
        await asyncio.gather(*reporting)
    await broker.aclose()


@pytest.mark.real_time
async def test_a_job_redelivered_too_often_has_failed(amqp_url: str) -> None:
    database = Database()
    process = _Process(amqp_url, database)
    async with _running(process):
        await process.store.submit(list(_jobs(1)))
        (job_id,) = database.jobs

        await asyncio.to_thread(_reject, amqp_url, lambda: database.job(job_id).state.is_final)

        job = database.job(job_id)
        assert job.state is JobState.FAILED
        assert job.error is not None
        assert job.error.type_name == "WorkerLost"


def _reject(url: str, is_over: Callable[[], bool]) -> None:
    """Return the messages in the queue of invitations by the one command that each version of RabbitMQ counts."""

    def is_over_or_rejected() -> bool:
        # The queue does not exist yet, or its processes do not.
        with suppress(AMQPError), Raw(url) as raw:
            method, _, _ = raw.channel.basic_get(jobs_queue("work"))
            if method is not None:
                raw.channel.basic_reject(method.delivery_tag, requeue=True)
        return is_over()

    eventually(is_over_or_rejected, "the job has ended")
