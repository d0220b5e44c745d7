"""Reasons of a waiting job, on a real RabbitMQ with a real Redis: no worker, a paused queue, outages."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Upgradable
from taskmq.model.states import JobState
from taskmq.operations.queues import pause_queues, resume_queues
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq


def _app(url: str, state: str | None, path: Path) -> TaskMQ:
    app = TaskMQ(url, state=state, store=f"sqlite:///{path}", name="explained")

    @app.task(name="render", queue="pdf", retry=None)
    async def render() -> str:
        return "rendered"

    return app


@pytest.mark.timeout(120)
@pytest.mark.real_time
async def test_a_job_is_explained_with_facts_of_broker_and_state(
    amqp_url: str, redis_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.db"
    app = _app(amqp_url, redis_url, path)
    away = _app("amqp://127.0.0.1:1/", "redis://127.0.0.1:1/0", path)
    scheduler = Scheduler(_app(amqp_url, redis_url, path))
    worker = Worker(_app(amqp_url, redis_url, path), WorkerConfig(concurrency=1, grace=5.0))
    async with app, away:
        store = app.sessions.store()
        assert isinstance(store, Upgradable)
        await store.upgrade()
        job = await app.jobs.asubmit("render")

        async def reasons(asked: TaskMQ = app) -> list[str]:
            return (await asked.jobs.aexplain(job.id)).reasons

        alone = await reasons()
        assert alone[0].startswith("no scheduler holds its queue's partition")
        assert alone[1].startswith("no worker consumes queue 'pdf' at amqp://")

        schedules = asyncio.create_task(scheduler.run())
        await until(_is(app, job.id, JobState.DISPATCHED))
        assert (await reasons())[0].startswith("no worker consumes queue 'pdf' at amqp://")

        await pause_queues(app, ["pdf"], note="printer", by="ann")
        works = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        paused = await reasons()
        assert paused[0].startswith("queue 'pdf' has been paused since ")
        assert paused[0].endswith(" by ann (printer)")
        assert len(paused) == 2

        unknown = await reasons(away)
        assert unknown[0].startswith("the broker at amqp://guest@127.0.0.1:1/")
        assert unknown[-1] == "cannot tell whether queue 'pdf' is paused: the state does not answer"
        assert not any("worker consumes" in reason for reason in unknown)

        await resume_queues(app, ["pdf"])
        assert await job.aresult(timeout=30) == "rendered"
        assert await reasons() == []
        worker.drain()
        scheduler.stop()
        await asyncio.gather(works, schedules)


def _is(app: TaskMQ, job_id: str, state: JobState) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await app.jobs.aget(job_id)).state is state

    return holds
