"""A worker of an app with delayed jobs in the state."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from taskmq import RetryPolicy, TaskMQ
from taskmq.errors import UnsupportedFeature
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.servers.waiting import until


@pytest.fixture
def url() -> Iterator[str]:
    name = uuid4().hex
    yield f"memory://{name}"
    forget_memory(name)


@pytest.mark.real_time
async def test_a_retry_waits_in_the_state_and_runs_at_its_time(url: str) -> None:
    app = TaskMQ(url, delay="state")
    attempts: list[int] = []
    has_failed, has_run = asyncio.Event(), asyncio.Event()

    @app.task(name="flaky", retry=RetryPolicy(backoff="constant", base=0.3, jitter=False))
    async def flaky() -> str:
        attempts.append(len(attempts) + 1)
        if len(attempts) == 1:
            has_failed.set()
            raise ValueError("once")
        has_run.set()
        return "done"

    async def waits() -> bool:
        return bool(await app.jobs.alist_waiting())

    async def is_idle() -> bool:
        return not await waits()

    job = await flaky.asend()
    worker = Worker(app, WorkerConfig())
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await has_failed.wait()
        await until(waits)
        assert [waiting.id for waiting in await app.jobs.alist_waiting()] == [job.id]
        await has_run.wait()
        assert await job.aresult(timeout=10) == "done"
        await until(is_idle)
        worker.drain()
        await running

    assert attempts == [1, 2]


def test_a_worker_of_an_app_without_a_state_refuses_to_start() -> None:
    app = TaskMQ("amqp://localhost", delay="state")

    @app.task
    async def task() -> None: ...

    with pytest.raises(UnsupportedFeature, match="delay='state' needs a state"):
        Worker(app, WorkerConfig())
