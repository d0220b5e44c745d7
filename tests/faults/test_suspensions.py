"""Suspended jobs whose workers are killed (-9) before and after they report that the job waits.

RabbitMQ and PostgreSQL, no state; with idempotency keys also SQLite, and Redis.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from taskmq import TaskMQ
from taskmq.model.states import JobState
from tests.faults.field import Commands, Process

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

_APP: Final = """
import os, signal
from pathlib import Path
from taskmq import Context, TaskMQ

app = TaskMQ(
    os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], state=os.environ.get("FAULTS_STATE"), name="faults"
)
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def note(*words: str) -> None:
    os.write(LEDGER, (" ".join(words) + "\\n").encode())


@app.task(name="remind", queue="work", retry=None)
async def remind(ctx: Context, name: str, seconds: float, dies: bool) -> int:
    await note("run", name)
    await ctx.astep("first", note, "first", name)
    try:
        await ctx.asleep(seconds)
    except BaseException:
        if dies and not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise
    await ctx.astep("second", note, "second", name)
    return ctx.attempt


@app.task(name="bill", queue="work", retry=None, idempotency_key="order")
async def bill(ctx: Context, order: str, asks: bool) -> str:
    try:
        if asks:
            await ctx.await_for("approved", bool)
    except BaseException:
        if not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise
    await note("bill", order, ctx.job_id)
    return ctx.job_id


@app.task(name="count", queue="work", retry=None)
async def count(ctx: Context, start: int) -> list[int]:
    await ctx.astep("made", note, "made", str(start))
    try:
        if taken := await ctx.await_for("next", int):
            await ctx.acontinue_as_new(start + taken)
    except BaseException as error:
        died = Path(f"died {error}")
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise
    return [start, ctx.attempt]
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/reports/outcomes.py::test_a_suspended_job_runs_again_at_its_instant_in_the_same_attempt"
)
@pytest.mark.timeout(300)
def test_a_sleeping_job_outlives_its_worker_before_and_after_the_report(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, name="faults")

        @app.task(name="remind", queue="work", retry=None)
        async def remind(name: str, seconds: float, dies: bool) -> int:
            return 0

        async with app:
            after = await app.jobs.asubmit("remind", "after", 10, False)
            while (await app.jobs.aget(after.id)).state is not JobState.SCHEDULED:
                await asyncio.sleep(0.05)
            slept = await app.jobs.aget(after.id)
            await asyncio.to_thread(workers[0].kill)
            workers.append(start("worker-2", "worker", "jobs:app", "--max-crashes", "0"))
            before = await app.jobs.asubmit("remind", "before", 5, True)

            assert [await job.aresult(timeout=200) for job in (after, before)] == [1, 1]
            record = await app.jobs.aget(after.id)
        assert record.started is not None
        assert record.started >= slept.due

    start("scheduler", "scheduler", "jobs:app")
    workers = [start("worker-1", "worker", "jobs:app", "--max-crashes", "0")]
    asyncio.run(main())

    runs = Counter((tmp_path / "runs").read_text().splitlines())
    assert runs == {
        "run after": 2, "first after": 1, "second after": 1,
        "run before": runs["run before"], "first before": 1, "second before": 1,
    }  # fmt: skip
    assert runs["run before"] >= 2


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/clocks.py::test_a_suspended_job_keeps_its_key_for_longer_than_jobs_are_kept"
)
@pytest.mark.parametrize("is_local", [True, False], ids=["sqlite", "postgresql"])
@pytest.mark.timeout(300)
def test_a_waiting_job_whose_workers_are_killed_keeps_its_key_in_an_app_with_redis(
    amqp_url: str, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest, is_local: bool
) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db" if is_local else request.getfixturevalue("job_store_url")

    async def main() -> None:
        app = TaskMQ(amqp_url, store=store, state=redis_url, name="faults")

        @app.task(name="bill", queue="work", retry=None, idempotency_key="order")
        async def bill(order: str, asks: bool) -> str:
            return order

        async with app:
            # The first run is killed before it reports that it waits.
            first = await app.jobs.asubmit("bill", "17", True)
            while not (tmp_path / "died").exists():
                await asyncio.sleep(0.05)
            second = await app.jobs.asubmit("bill", "17", False)
            while not (await app.jobs.aget(first.id)).suspension:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(worker.kill)
            start("worker-2", "worker", "jobs:app", "--max-crashes", "0")
            other = await app.jobs.asubmit("bill", "18", False)
            assert await other.aresult(timeout=200) == other.id
            await app.jobs.asignal(first.id, "approved", True)

            assert [await job.aresult(timeout=200) for job in (first, second)] == [first.id, first.id]
        bills = (tmp_path / "runs").read_text().splitlines()
        assert bills == [f"bill 18 {other.id}", f"bill 17 {first.id}"]

    with Commands(tmp_path, _APP, url=amqp_url, store=store, state=redis_url) as start:
        if is_local:
            assert start("upgrade", "store", "upgrade", "--store", store).wait(60) == 0
        start("scheduler", "scheduler", "jobs:app")
        worker = start("worker-1", "worker", "jobs:app", "--max-crashes", "0")
        asyncio.run(main())


@pytest.mark.nightly(
    "tests/unit/stored_jobs/test_suspensions.py::test_a_signal_that_comes_during_a_run_wakes_the_job_afterwards"
)
@pytest.mark.timeout(300)
def test_a_waiting_job_continues_with_its_signals_however_its_workers_end(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, name="faults")

        @app.task(name="count", queue="work", retry=None)
        async def count(start: int) -> list[int]:
            return []

        async with app:
            job = await app.jobs.asubmit(count, 1)
            while not (await app.jobs.aget(job.id)).suspension:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(workers[0].kill)
            for _ in range(2):
                await app.jobs.asignal(job.id, "next", 4, signal_id="first")
            await app.jobs.asignal(job.id, "next", 0, signal_id="last")
            workers.append(start("worker-2", "worker", "jobs:app", "--max-crashes", "0"))
            assert await job.aresult(timeout=200) == [5, 1]

    start("scheduler", "scheduler", "jobs:app")
    workers = [start("worker-1", "worker", "jobs:app", "--max-crashes", "0")]
    asyncio.run(main())

    assert Counter((tmp_path / "runs").read_text().splitlines()) == {"made 1": 1, "made 5": 1}
    assert {each.name for each in tmp_path.glob("died *")} == {
        "died waiting for the signal 'next'", "died continuing with new arguments",
    }  # fmt: skip
