"""Jobs of the store at workers whose connections to RabbitMQ are cut: nothing is charged, and first ends count."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from taskmq import TaskMQ
from taskmq.client.plugins import open_broker
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers import TcpProxy
from tests.servers.waiting import until
from tests.unit.app_kit import use_session
from tests.unit.store_kit import Database, StagedStore

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(120)]

_JOBS = 240
_CUTS = 4
_SLOTS = 8
_SHORT_JOBS = 3_000


@asynccontextmanager
async def _scheduling(url: str, database: Database) -> AsyncIterator[TaskMQ]:
    """An app whose jobs a scheduler dispatches, which nobody cuts."""
    app = TaskMQ(url, name="shop")
    app.task(name="work", queue="work")(_nothing)
    store = StagedStore(database, clock=SystemClock())
    session = Session(open_broker(url, BrokerOptions(name="scheduler")), None, send_timeout=10.0, store=store)
    use_session(app, lambda: session)
    scheduler = Scheduler(app)
    running = asyncio.create_task(scheduler.run())
    try:
        yield app
    finally:
        scheduler.stop()
        await running


@asynccontextmanager
async def _working(
    url: str, name: str, work: Callable[[str], Awaitable[None]], *, slots: int = _SLOTS
) -> AsyncIterator[None]:
    app = TaskMQ(url, name="shop")
    app.task(name="work", queue="work")(work)
    worker = Worker(app, WorkerConfig(name=name, concurrency=slots, grace=30))
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.is_ready.wait(), 30)
        yield
    finally:
        worker.requeue_now()
        await running


async def _nothing(name: str) -> None:
    del name


async def _count_parcels(url: str) -> int:
    """Return how many parcels wait; -1 if there was never one."""
    broker = open_broker(url, BrokerOptions(name="looks"))
    try:
        return sum([each.ready for each in await broker.stats(["work.parcels"])] or [-1])
    finally:
        await broker.aclose()


def _through(proxy: TcpProxy, url: str) -> str:
    return urlsplit(url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()


async def test_a_run_continues_and_runs_once_if_its_connection_is_cut(amqp_url: str) -> None:
    database = Database()
    runs: list[str] = []
    is_over = asyncio.Event()

    async def work(name: str) -> None:
        runs.append(name)
        if name == "long":
            await is_over.wait()

    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(TcpProxy(urlsplit(amqp_url).port or 5672))
        app = await stack.enter_async_context(_scheduling(amqp_url, database))
        await stack.enter_async_context(_working(_through(proxy, amqp_url), "cut", work))
        job = await app.jobs.asubmit("work", "long")
        await until(lambda: database.job(job.id).state is JobState.RUNNING)
        await stack.enter_async_context(_working(amqp_url, "other", work))

        proxy.cut()
        await until(lambda: [event.kind for event in database.events(job.id)] == ["detached"])
        quick = [await app.jobs.asubmit("work", "quick") for _ in range(2 * _SLOTS)]
        await until(lambda: all(database.job(one.id).state is JobState.SUCCEEDED for one in quick))
        is_over.set()
        await until(lambda: database.job(job.id).state is JobState.SUCCEEDED)

    record = database.job(job.id)
    assert (record.attempt, record.token >> 32, record.worker) == (1, 1, "cut")
    assert runs.count("long") == 1


async def test_cuts_under_load_charge_no_job_and_repeat_only_the_jobs_in_hand(amqp_url: str) -> None:
    database = Database()
    runs: Counter[str] = Counter()

    async def work(name: str) -> None:
        runs[name] += 1
        # Some are short, and some are so long that their starts are reported.
        await asyncio.sleep(0.4 if name.endswith("0") else 0.02)

    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(TcpProxy(urlsplit(amqp_url).port or 5672))
        app = await stack.enter_async_context(_scheduling(amqp_url, database))
        for name in ("a", "b"):
            await stack.enter_async_context(_working(_through(proxy, amqp_url), name, work))
        await app.jobs.asubmit_many("work", [(f"job {number}",) for number in range(_JOBS)])

        for part in range(1, _CUTS + 1):
            await until(lambda part=part: database.live <= _JOBS * (1 - part / (_CUTS + 1)))  # type: ignore[misc]
            proxy.cut()
        await until(lambda: database.live == 0)

    jobs = database.jobs.values()
    assert Counter((job.state, job.attempt, job.token >> 32) for job in jobs) == {(JobState.SUCCEEDED, 1, 1): _JOBS}
    assert len(runs) == _JOBS
    assert sum(runs.values()) - _JOBS <= _CUTS * 2 * _SLOTS
    assert not [event for job in jobs for event in database.events(job.id) if "died" in event.note]


async def test_cuts_under_load_lose_no_job_of_a_parcel(amqp_url: str) -> None:
    database = Database()
    runs: Counter[str] = Counter()

    async def work(name: str) -> None:
        runs[name] += 1

    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(TcpProxy(urlsplit(amqp_url).port or 5672))
        app = await stack.enter_async_context(_scheduling(amqp_url, database))
        for name in ("a", "b"):
            await stack.enter_async_context(_working(_through(proxy, amqp_url), name, work, slots=100))
        await app.jobs.asubmit_many("work", [(f"job {number}",) for number in range(_SHORT_JOBS)])

        for part in range(1, _CUTS + 1):
            await until(lambda part=part: database.live <= _SHORT_JOBS * (1 - part / (_CUTS + 1)))  # type: ignore[misc]
            proxy.cut()
        await until(lambda: database.live == 0)

        async def is_no_parcel_left() -> bool:
            return await _count_parcels(amqp_url) == 0

        # Those that came back with the last cut wait until a worker is connected again.
        await until(is_no_parcel_left)

    jobs = database.jobs.values()
    assert Counter((job.state, job.attempt) for job in jobs) == {(JobState.SUCCEEDED, 1): _SHORT_JOBS}
    assert len(runs) == _SHORT_JOBS
    # With each cut, the jobs in hand of both workers may run again.
    assert sum(runs.values()) - _SHORT_JOBS <= _CUTS * 2 * 1_000
    assert not [event for job in jobs for event in database.events(job.id) if "died" in event.note]
