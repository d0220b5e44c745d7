"""Jobs of the store whose workers are killed, with real worker processes: who is charged, and who is not."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.client.plugins import open_broker
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from tests.e2e.kit import Project
from tests.servers.waiting import until
from tests.unit.app_kit import use_session
from tests.unit.store_kit import Database, StagedStore

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]

_INNOCENT = 40
_POISON = """
import asyncio, os, signal
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"])


def note(*words):
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (" ".join(map(str, words)) + "\\n").encode())
    os.close(ledger)


@app.task
async def poison(name: str) -> None:
    note("started", name, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def innocent(name: str) -> None:
    note("started", name, os.getpid())
    await asyncio.sleep(0.1)


@app.task
async def long(name: str) -> None:
    note("started", name, os.getpid())
    while not os.path.exists("open"):
        await asyncio.sleep(0.05)
"""


@asynccontextmanager
async def _scheduling(url: str, database: Database) -> AsyncIterator[tuple[TaskMQ, Scheduler]]:
    app = TaskMQ(url, name="shop")

    async def takes_name(name: str) -> None: ...

    for task in ("poison", "innocent", "long"):
        app.task(name=f"jobs.{task}")(takes_name)
    store = StagedStore(database, clock=SystemClock())
    session = Session(open_broker(url, BrokerOptions(name="scheduler")), None, send_timeout=10.0, store=store)
    use_session(app, lambda: session)
    scheduler = Scheduler(app)
    running = asyncio.create_task(scheduler.run())
    try:
        yield app, scheduler
    finally:
        scheduler.stop()
        await running


@pytest.fixture
def project(amqp_url: str, tmp_path: Path) -> Project:
    it = Project(tmp_path, amqp_url, f"local://{tmp_path}/unused")
    it.write(_POISON)
    return it


async def test_a_job_that_kills_its_workers_fails_after_three_starts_and_charges_no_other(
    amqp_url: str, project: Project
) -> None:
    database = Database()
    try:
        async with _scheduling(amqp_url, database) as (app, scheduler):
            await asyncio.to_thread(project.start, concurrency=8)
            # A worker that dies before it was heard cannot be missed.
            await until(lambda: len(scheduler._workers) == 1)
            poison = await app.jobs.asubmit("jobs.poison", "poison")
            innocent = await app.jobs.asubmit_many("jobs.innocent", [(f"i{each}",) for each in range(_INNOCENT)])

            await until(lambda: database.live == 0, within=timedelta(seconds=240))
    finally:
        await asyncio.to_thread(project.close)

    assert {database.job(job.id).state for job in innocent} == {JobState.SUCCEEDED}
    assert {database.job(job.id).attempt for job in innocent} == {1}
    failed = database.job(poison.id)
    assert (failed.state, failed.attempt) == (JobState.FAILED, 1)
    assert failed.error is not None
    assert failed.error.type_name == "taskmq.errors.WorkerLost"
    starts = Counter(name for _, name, *_ in project.ledger)
    assert starts.pop("poison") == 3
    assert len(starts) == _INNOCENT


@pytest.mark.nightly(
    "tests/e2e/test_stored_poison.py::test_a_job_that_kills_its_workers_fails_after_three_starts_and_charges_no_other"
)
async def test_a_killed_worker_charges_the_job_that_it_had_started_once(amqp_url: str, project: Project) -> None:
    database = Database()
    try:
        async with _scheduling(amqp_url, database) as (app, _):
            run = await asyncio.to_thread(project.start, concurrency=1)
            job = await app.jobs.asubmit("jobs.long", "long")
            behind = await app.jobs.asubmit("jobs.innocent", "behind")
            await until(lambda: database.job(job.id).state is JobState.RUNNING)
            (pid,) = run.children
            os.kill(pid, signal.SIGKILL)

            # What only waited beside it runs at once; what had begun once its worker is missed.
            await until(lambda: database.job(behind.id).state is JobState.SUCCEEDED)
            assert len(project.ledger_lines("started", "long")) == 1
            await until(lambda: len(project.ledger_lines("started", "long")) == 2, within=timedelta(seconds=90))
            (project.folder / "open").touch()
            await until(lambda: database.live == 0)
    finally:
        await asyncio.to_thread(project.close)

    record = database.job(job.id)
    assert (record.state, record.attempt, record.token >> 32) == (JobState.SUCCEEDED, 1, 1)
    died = [event for event in database.events(job.id) if "died" in event.note]
    assert [event.kind for event in died] == ["interrupted"]
    assert [event for event in database.events(behind.id) if "died" in event.note] == []


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::"
    "test_a_job_that_must_not_run_twice_fails_although_the_broker_counts_nothing"
)
async def test_a_job_that_runs_at_most_once_fails_with_its_killed_worker(amqp_url: str, project: Project) -> None:
    database = Database()
    try:
        async with _scheduling(amqp_url, database) as (app, _):
            run = await asyncio.to_thread(project.start, concurrency=1)
            job = await app.jobs.asubmit("jobs.long", "once", guarantee="at_most_once")
            behind = await app.jobs.asubmit("jobs.innocent", "behind")
            await until(lambda: database.job(job.id).state is JobState.RUNNING)
            (pid,) = run.children
            os.kill(pid, signal.SIGKILL)

            await until(lambda: database.live == 0, within=timedelta(seconds=150))
    finally:
        await asyncio.to_thread(project.close)

    assert len(project.ledger_lines("started", "once")) == 1
    failed = database.job(job.id)
    assert (failed.state, failed.attempt, failed.token >> 32) == (JobState.FAILED, 1, 1)
    assert failed.error is not None
    assert "its worker died, so it is unknown whether it ran, and it runs at most once" in failed.error.message
    assert database.job(behind.id).state is JobState.SUCCEEDED
