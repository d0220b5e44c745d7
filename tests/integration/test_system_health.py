"""Facts about an installation for its operators, on PostgreSQL and SQLite: health, waiting jobs, usage."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.app_api import system
from taskmq.app_api.system import examine_system, find_problems
from taskmq.cli.operator import OperatorApi
from taskmq.contracts.jobs import ScheduleChange, Upgradable
from taskmq.operations.diagnosis import health
from taskmq.scheduler import Scheduler
from taskmq.scheduler.history import listener
from taskmq.schedules.triggers import every
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

_Open = Callable[[], TaskMQ]


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.nightly("tests/integration/test_system_health.py")),
        "postgresql",
    ]
)
def open_again(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Open:
    """Return a function that opens the same app again, as another process would. Its parts may be slow."""
    monkeypatch.setattr(system, "_TIMEOUT", 60.0)
    monkeypatch.setattr(system, "_DOCTOR_TIMEOUT", 120.0)
    monkeypatch.setattr(health, "_TIMEOUT", 60.0)
    monkeypatch.setattr(system, "_WORKERS_ANSWER", 0.25)
    monkeypatch.setattr(health, "_WORKERS_ANSWER", 0.25)
    monkeypatch.setattr(listener, "_PERIOD", 0.5)
    url = f"memory://{uuid4().hex}"
    store = f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else request.getfixturevalue("job_store_url")

    def open_app() -> TaskMQ:
        app = TaskMQ(url, store=store, name="healthy", version="7")

        @app.task(name="render", queue="pdf")
        async def render() -> None: ...

        @app.task(name="burn", queue="pdf")
        def burn() -> int:
            return sum(range(1_000_000))

        return app

    return open_app


@asynccontextmanager
async def _run_together(*services: Scheduler | Worker) -> AsyncGenerator[None]:
    """Run schedulers and workers until the block ends."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run())
        yield
        for service in services:
            if isinstance(service, Worker):
                service.drain()
            else:
                service.stop()


async def _prepare(app: TaskMQ) -> None:
    store = app.sessions.store()
    assert isinstance(store, Upgradable)
    await store.upgrade()


async def test_each_partition_has_its_holder_and_rate_and_each_clock_is_compared(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        schedulers = [Scheduler(open_again()), Scheduler(open_again())]
        found = await examine_system(app)
        assert (found.schedulers, {each.holder for each in found.partitions}) == ([], {None})

        async with _run_together(*schedulers, Worker(open_again(), WorkerConfig(concurrency=2, grace=5.0))):

            async def is_shared() -> bool:
                nonlocal found
                found = await examine_system(app)
                holders = {each.holder for each in found.partitions}
                # A worker under load may answer too late.
                return (
                    len(holders) == 2
                    and holders == {each.name for each in found.schedulers}
                    and found.clocks[-1].kind == "worker"
                )

            async def is_counted() -> bool:
                return sum(each.rate or 0.0 for each in (await examine_system(app)).partitions) > 0.0

            await until(is_shared)
            for _ in range(20):
                await app.jobs.asubmit("render")
            await until(is_counted)

    assert all(report.version and report.pid for report in found.schedulers)
    assert [clock.kind for clock in found.clocks] == ["store", "scheduler", "scheduler", "worker"]
    assert not any(clock.is_wrong for clock in found.clocks)
    versions = {(each.kind, each.app_version): each.processes for each in found.versions}
    assert versions == {("server", "7"): 1, ("scheduler", "7"): 2, ("worker", "7"): 1}
    parts = {part.part: part for part in found.parts}
    assert parts["store"].size is not None
    assert parts["store"].size > 0
    assert parts["store"].status == "works"
    assert parts["broker"].address is not None
    assert "healthy" not in parts["broker"].address


async def test_a_stopped_scheduler_leaves_the_list_and_its_partitions_become_late(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        async with _run_together(Scheduler(open_again())):

            async def is_listed() -> bool:
                return len((await examine_system(app)).schedulers) == 1

            await until(is_listed)
        await app.jobs.asubmit("render", delay=0.5)
        found = await examine_system(app)

        async def is_late() -> bool:
            nonlocal found
            found = await examine_system(app)
            return sum(each.late > 0 for each in found.partitions) == 1

        await until(is_late)

        problems = await find_problems(app)

    assert found.schedulers == []
    assert ("store", "start `taskmq scheduler`") in {(each.about, each.remedy) for each in problems}


async def test_a_late_schedule_is_a_problem(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        schedules = app.sessions.store().schedules
        await app.schedules.aadd("nightly", app.tasks["render"], every("1m"))
        (row,) = await schedules.find("healthy", ["nightly"])
        assert row is not None
        assert row.next is not None
        late = ScheduleChange(
            app="healthy",
            name="nightly",
            before=row,
            definition=row.definition,
            record=row.record,
            next=row.next - 300_000,
        )
        assert await schedules.write([late]) == [True]

        problems = await find_problems(app)

    (problem,) = [each for each in problems if each.about == "schedules"]
    assert problem.level == "problem"
    assert problem.finding.startswith("the latest schedule has been due for 3")


async def test_a_flood_of_one_tenant_shows_in_its_queue_and_delays_no_other_tenant(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        for _ in range(30):
            await app.jobs.asubmit("render", tenant="acme")
        other = await app.jobs.asubmit("render", tenant="globex")
        (queue,) = [each for each in (await OperatorApi(app).queues.list()).queues if each.queue == "pdf"]
        waiting = await OperatorApi(app).jobs.page("status:queued tenant:globex")

    assert (queue.stored, queue.ready) == (31, 0)
    assert queue.oldest is not None
    assert [each.job_id for each in waiting.items] == [other.id]


async def test_the_gauge_of_waiting_jobs_counts_both_lanes(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        scheduler = Scheduler(open_again())
        async with _run_together(scheduler):
            for _ in range(5):
                await app.jobs.asubmit("render")
            for _ in range(2):
                await app.tasks["render"].asend()

            def count() -> int:
                return sum(scheduler.snapshot().waiting.get("pdf", {}).values())

            await until(lambda: count() == 7)

            waiting = scheduler.snapshot().waiting
            assert set(waiting["pdf"]) == {"store", "broker", "worker"}


async def test_usage_has_waiting_running_and_processor_time_of_both_lanes_by_day(open_again: _Open) -> None:
    async with open_again() as app:
        await _prepare(app)
        worker, figures = Worker(open_again(), WorkerConfig(concurrency=2, grace=5.0)), OperatorApi(app).figures
        async with _run_together(Scheduler(open_again(), counts_runs=True), worker):
            # The scheduler asks workers for events once it listens.
            await until(lambda: worker.stats.on_end is not None)
            await app.jobs.asubmit("burn", tenant="acme")
            await app.tasks["burn"].asend()

            async def is_counted() -> bool:
                return sum(line.runs for line in await figures.usage()) == 2

            await until(is_counted)
            lines = await figures.usage()
            (whole,) = await figures.usage(by=("queue",), task="burn")

    assert [(line.tenant, line.task, line.queue, line.succeeded) for line in lines] == [
        ("", "burn", "pdf", 1),
        ("acme", "burn", "pdf", 1),
    ]
    assert all(line.processor_seconds > 0 and line.running_seconds > 0 for line in lines)
    assert (whole.runs, whole.ended, whole.failed, whole.tenant, whole.task) == (2, 2, 0, "", "")


async def test_a_broker_that_refuses_connections_leaves_the_other_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_DOCTOR_TIMEOUT", 2.0)
    app = TaskMQ("amqp://127.0.0.1:1", store=f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="render", queue="pdf")
    async def render() -> None: ...

    async with app:
        await _prepare(app)

        job = await app.jobs.asubmit("render")
        found, problems = await asyncio.gather(examine_system(app), find_problems(app))
        explained = await app.jobs.aexplain(job.id)

    statuses = {part.part: part.status for part in found.parts}
    assert (statuses["broker"], statuses["workers"], statuses["store"]) == ("down", "unknown", "works")
    assert len(found.partitions) == app.sessions.store().dispatching.partitions
    (broker,) = [each for each in problems if each.about == "broker"]
    assert broker.level == "problem"
    assert "nothing listens there" in broker.finding
    assert any("does not answer: no job reaches a worker until it is back" in reason for reason in explained.reasons)
