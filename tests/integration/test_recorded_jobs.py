"""Sent jobs of queues with `record="all"`: from their workers over the broker to the lists of the job store."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from taskmq import Context, RetryPolicy, TaskMQ, WorkQueue
from taskmq.contracts.jobs import JobRecord
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until

pytestmark = pytest.mark.real_time

_SHOP = """
    import os, signal
    from taskmq import Context, TaskMQ, WorkQueue

    app = TaskMQ({url!r}, queues=[WorkQueue("mails", record="all")], name="shop")

    @app.task(name="mail", queue="mails")
    async def mail(order: int) -> None:
        with open({ran!r}, "a") as file:
            file.write(f"{{order}}\\n")

    @app.task(name="kill", queue="mails")
    async def kill(ctx: Context) -> None:
        if not ctx.redelivered:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def _app(url: str, folder: Path) -> TaskMQ:
    app = TaskMQ(url, store=f"sqlite:///{folder}/jobs.db", queues=[WorkQueue("mails", record="all")], name="shop")

    @app.task(name="mail", queue="mails", retry=RetryPolicy(max_attempts=2, base="10ms", jitter=False))
    def mail(order: int, ctx: Context) -> None:
        logging.getLogger("shop").warning("order %d, attempt %d", order, ctx.attempt)
        if order == 13:
            raise ValueError("refused")

    @app.task(name="quiet", queue="quiet")
    async def quiet() -> None:
        """Belongs to a queue without records."""

    @app.task(name="kill", queue="mails")
    async def kill(ctx: Context) -> None:
        """Stands for the task that kills its worker."""

    return app


@asynccontextmanager
async def _running(url: str, folder: Path, *, works: bool = True) -> AsyncGenerator[TaskMQ]:
    """Run a scheduler, and a worker if it `works`, and yield an app that sends and lists."""
    scheduler = Scheduler(_app(url, folder), counts_runs=False)
    worker = Worker(_app(url, folder), WorkerConfig(name="w", capture_logs="info"))
    async with _app(url, folder) as app:
        running = [asyncio.create_task(scheduler.run())]
        try:
            # It has declared the queue of the reports.
            await until(lambda: scheduler.not_ready() is None)
            if works:
                running.append(asyncio.create_task(worker.run()))
                await worker.is_ready.wait()
            yield app
        finally:
            worker.drain()
            scheduler.stop()
            await asyncio.gather(*running)


async def _wait_ended(app: TaskMQ, count: int) -> list[JobRecord]:
    """Return the recorded jobs, the first sent first, once so many have ended."""

    async def are_all() -> bool:
        jobs = (await app.jobs.alist("via:broker")).jobs
        return len([job for job in jobs if job.state.is_final]) == count

    await until(are_all)
    return (await app.jobs.alist("via:broker")).jobs[::-1]


async def _check_records(url: str, folder: Path) -> None:
    async with _running(url, folder) as app:
        await app.tasks["quiet"].asend()
        await app.tasks["mail"].asend(1)
        await app.tasks["mail"].options(job_id="order", tenant="acme").asend(2)
        failing = await app.tasks["mail"].asend(13)

        good, chosen, bad = await _wait_ended(app, 3)

        assert [
            (job.task, job.tenant, job.state, job.attempt, job.worker, job.via) for job in (good, chosen, bad)
        ] == [
            ("mail", "", JobState.SUCCEEDED, 1, "w", "broker"),
            ("mail", "acme", JobState.SUCCEEDED, 1, "w", "broker"),
            ("mail", "", JobState.FAILED, 2, "w", "broker"),
        ]
        assert (bad.id, (await app.jobs.aget("order", tenant="acme")).id) == (failing.id, chosen.id)
        assert [
            (one.attempt, one.state, one.error and one.error.message) for one in await app.jobs.aattempts(bad.id)
        ] == [
            (1, JobState.FAILED, "refused"),
            (2, JobState.FAILED, "refused"),
        ]
        assert [(line.attempt, line.message) for line in (await app.jobs.alogs(bad.id)).lines] == [
            (1, "order 13, attempt 1"),
            (2, "order 13, attempt 2"),
        ]
        # They are counted apart from stored jobs.
        assert (await app.jobs.acount("via:broker"), await app.jobs.acount()) == (3, 0)
        assert await app.jobs.acount("via:broker status:failed", tenant="") == 1


async def test_sent_jobs_are_recorded_with_their_runs_and_logs_on_a_local_broker(tmp_path: Path) -> None:
    await _check_records(f"local://{tmp_path}/queue", tmp_path)


@pytest.mark.rabbitmq
async def test_sent_jobs_are_recorded_with_their_runs_and_logs_on_rabbitmq(amqp_url: str, tmp_path: Path) -> None:
    await _check_records(amqp_url, tmp_path)


@pytest.mark.rabbitmq
async def test_reports_wait_at_the_broker_until_a_scheduler_runs(amqp_url: str, tmp_path: Path) -> None:
    async with _running(amqp_url, tmp_path, works=False):
        """The scheduler declares the queue of the reports."""
    worker = Worker(_app(amqp_url, tmp_path), WorkerConfig(name="w"))
    async with _app(amqp_url, tmp_path) as app:
        working = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        await app.tasks["mail"].asend(1)
        await until(lambda: worker.stats.ended == 1)
        worker.drain()
        await working

    async with _running(amqp_url, tmp_path, works=False) as app:
        (job,) = await _wait_ended(app, 1)

    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 1)


@pytest.mark.rabbitmq
async def test_a_killed_worker_leaves_no_end_that_did_not_happen(amqp_url: str, tmp_path: Path) -> None:
    """Runs that it had not reported may be missing; the job that killed it runs again and is recorded then."""
    ran = tmp_path / "ran"
    (tmp_path / "killed.py").write_text(dedent(_SHOP.format(url=amqp_url, ran=str(ran))))
    async with _running(amqp_url, tmp_path, works=False) as app:
        orders = [(await app.tasks["mail"].asend(order)).id for order in range(20)]
        killing = (await app.tasks["kill"].asend()).id
        orders.append((await app.tasks["mail"].asend(99)).id)
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "taskmq", "worker", "killed:app"), cwd=tmp_path
        )
        try:

            async def has_run_again() -> bool:
                return bool(await app.jobs.acount(f"via:broker status:succeeded id:{killing}"))

            await until(has_run_again)
        finally:
            worker.terminate()
            await worker.wait()
        await _caught_up(app, orders[-1])
        jobs = (await app.jobs.alist("via:broker", limit=100)).jobs

    done = set(ran.read_text().split())
    assert done == {str(order) for order in (*range(20), 99)}
    assert {job.id for job in jobs} <= {*orders, killing}
    assert len({job.id for job in jobs}) == len(jobs)
    assert {job.state for job in jobs} <= {JobState.SUCCEEDED, JobState.RUNNING}
    (again,) = [job for job in jobs if job.id == killing]
    assert (again.state, again.attempt) == (JobState.SUCCEEDED, 1)


async def _caught_up(app: TaskMQ, job_id: str) -> None:
    """Return once a job that ended after the kill is recorded."""

    async def is_recorded() -> bool:
        return bool(await app.jobs.acount(f"via:broker id:{job_id}"))

    await until(is_recorded)
