"""Workers that understand parcels of stored jobs and workers that do not, on one queue of RabbitMQ."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.model.states import JobState
from taskmq.model.telemetry.events import encode_batch, worker_topic
from taskmq.model.topology import is_parcels_queue
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker
from taskmq_rabbitmq.consume.consumer import RabbitMQConsumer
from taskmq_rabbitmq.model import entities
from taskmq_rabbitmq.model.url import parse_url
from tests.integration.parcel_scheduling import CountingSession, schedule_jobs
from tests.servers.waiting import until
from tests.unit.app_kit import use_session
from tests.unit.scheduler.stage import worker_event
from tests.unit.store_kit import Database

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(120)]

_SLOTS = 100
_JOBS = 4_000


class _OldBroker(RabbitMQBroker):
    """The connection of a worker from before parcels: it neither announces nor consumes them."""

    def announce(self, topic: str, body: bytes) -> bool:
        return super().announce(topic, body.replace(b'"parcels":true', b'"parcels":false'))

    async def consume(
        self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]
    ) -> RabbitMQConsumer:
        return await super().consume([each for each in subscriptions if not is_parcels_queue(each.queue)], deliver)


@asynccontextmanager
async def _working(url: str, name: str, *, broker: type[RabbitMQBroker] = RabbitMQBroker) -> AsyncGenerator[Worker]:
    app = TaskMQ(url, name="shop")
    app.task(name="work", queue="work")(_work)
    session = Session(broker(parse_url(url), BrokerOptions(name=name)), None, send_timeout=10.0)
    use_session(app, lambda: session)
    worker = Worker(app, WorkerConfig(name=name, concurrency=_SLOTS, grace=30))
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.is_ready.wait(), 30)
        yield worker
    finally:
        worker.requeue_now()
        await running


async def _work(name: str) -> None:
    del name


async def _run_jobs(app: TaskMQ, database: Database, count: int) -> None:
    await app.jobs.asubmit_many("work", [(f"job {number}",) for number in range(count)])
    await until(lambda: database.live == 0)


def _announce_worker(session: CountingSession) -> None:
    """Announce a worker that understands parcels and consumes nothing, as one that has just been killed."""
    event = worker_event(name="killed", slots=_SLOTS, parcels=True)
    session.broker.announce(worker_topic("beat"), encode_batch("killed", [event], dropped=0))  # type: ignore[attr-defined]


def _count_ends(database: Database) -> Counter[tuple[JobState, int]]:
    return Counter((job.state, job.attempt) for job in database.jobs.values())


@pytest.mark.nightly(
    "tests/integration/test_parcel_rollbacks.py::test_a_worker_without_parcels_that_joins_stops_them_and_loses_no_job"
)
async def test_parcels_begin_when_the_last_worker_without_them_leaves(amqp_url: str) -> None:
    database = Database()
    async with schedule_jobs(amqp_url, database) as (app, session), _working(amqp_url, "new"):
        async with _working(amqp_url, "old", broker=_OldBroker):
            await _run_jobs(app, database, _JOBS)
            assert session.parcels == 0

        await _run_jobs(app, database, _JOBS)

        assert session.parcels > 0
        assert _count_ends(database) == {(JobState.SUCCEEDED, 1): 2 * _JOBS}


@pytest.mark.nightly(
    "tests/integration/test_parcel_rollbacks.py::test_a_worker_without_parcels_that_joins_stops_them_and_loses_no_job"
)
async def test_parcels_that_no_worker_understands_expire_and_their_jobs_run(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A minute otherwise.
    monkeypatch.setattr(entities, "_PARCEL_TTL", 3_000)
    database = Database()
    async with schedule_jobs(amqp_url, database) as (app, session):
        async with _working(amqp_url, "new"):
            await _run_jobs(app, database, 1_000)
        sent = session.parcels
        _announce_worker(session)
        await app.jobs.asubmit_many("work", [(f"job {number}",) for number in range(_JOBS)])
        await until(lambda: session.parcels > sent)

        async with _working(amqp_url, "old", broker=_OldBroker):
            await until(lambda: database.live == 0)

        assert _count_ends(database) == {(JobState.SUCCEEDED, 1): 1_000 + _JOBS}
        assert {job.worker for job in database.jobs.values() if job.token >> 32 > 1} == {"old"}


async def test_a_worker_without_parcels_that_joins_stops_them_and_loses_no_job(amqp_url: str) -> None:
    database = Database()
    async with schedule_jobs(amqp_url, database) as (app, session), _working(amqp_url, "new"):
        await _run_jobs(app, database, 1_000)
        await app.jobs.asubmit_many("work", [(f"job {number}",) for number in range(_JOBS)])
        await until(lambda: session.parcels > 0)
        async with _working(amqp_url, "old", broker=_OldBroker):
            await until(lambda: database.live == 0)

            rounds = 0

            async def has_heard_of_it() -> bool:
                nonlocal rounds
                rounds += 1
                sent = session.parcels
                await _run_jobs(app, database, 1_000)
                return session.parcels == sent

            # The scheduler may be ahead of the worker's announcement.
            await until(has_heard_of_it)
            sent = session.parcels
            await _run_jobs(app, database, 1_000)

            assert session.parcels == sent
            assert _count_ends(database) == {(JobState.SUCCEEDED, 1): 2_000 + _JOBS + 1_000 * rounds}
