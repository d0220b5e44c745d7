"""Two nodes with real workers, a real scheduler, RabbitMQ and a file: jobs run on their assigned node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.model.nodes import AllocationFilter
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

_Ran = dict[int, str]


def _app(url: str, path: Path, node: str, ran: _Ran) -> TaskMQ:
    """Build an app whose task returns its node."""
    app = TaskMQ(url, store=f"sqlite:///{path}", name="nodes", queues=[WorkQueue("train", placed=True)])

    @app.task(name="train", queue="train", retry=None)
    async def train(number: int) -> None:
        ran[number] = node

    return app


@asynccontextmanager
async def _running(*runs: tuple[Callable[[], None], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these services during the block; each is stopped by its first element."""
    tasks = [asyncio.create_task(run) for _, run in runs]
    try:
        yield
    finally:
        for stop, _ in runs:
            stop()
        await asyncio.wait(tasks)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                task.result()


def _worker(url: str, path: Path, node: str, ran: _Ran, **more: Any) -> tuple[Callable[[], None], Any]:
    config = WorkerConfig(node=node, concurrency=4, grace=5.0, name=node, **more)
    worker = Worker(_app(url, path, node, ran), config)
    return worker.drain, worker.run()


@pytest.mark.timeout(120)
def test_jobs_run_on_a_suitable_node(amqp_url: str, tmp_path: Path) -> None:
    ran: _Ran = {}
    path = tmp_path / "jobs.db"

    async def run() -> None:
        app = _app(amqp_url, path, "submitter", ran)
        scheduler = Scheduler(_app(amqp_url, path, "scheduler", ran))
        gpu = _worker(amqp_url, path, "g", ran, resources={"cpu": 2.0, "gpu": 2.0}, node_labels={"zone": "a"})
        plain = _worker(amqp_url, path, "p", ran, resources={"cpu": 8.0, "gpu": 0.0}, node_labels={"zone": "b"})

        async def listens() -> bool:
            return bool(scheduler.status().partitions)

        async with app, _running((scheduler.stop, scheduler.run())), AsyncExitStack() as stack:
            await until(listens)
            await stack.enter_async_context(_running(gpu, plain))
            nodes = app.sessions.store().nodes

            async def are_known() -> bool:
                return {node.name for node in await nodes.nodes()} == {"g", "p"}

            await until(are_known)
            jobs = [
                await app.jobs.asubmit("train", 1, resources={"gpu": 1}),
                await app.jobs.asubmit("train", 2, resources={"cpu": 6}),
                await app.jobs.asubmit("train", 3, place={"labels": {"zone": "b"}}),
                *[await app.jobs.asubmit("train", number, resources={"gpu": 1}) for number in range(4, 10)],
            ]
            never = await app.jobs.asubmit("train", 99, resources={"gpu": 64})

            async def have_ended() -> bool:
                return all([(await app.jobs.aget(job.id)).state is JobState.SUCCEEDED for job in jobs])

            await until(have_ended)
            explained = await app.jobs.aexplain(never.id)
            assert any("unschedulable" in reason for reason in explained.reasons), explained
            assert (await app.jobs.aget(never.id)).state is JobState.QUEUED
            placed = await nodes.allocations(AllocationFilter(), limit=100)
            assert len(placed) == len(jobs)
            assert [node.used for node in await nodes.nodes()] == [{}, {}]

    asyncio.run(run())
    assert ran == {1: "g", 2: "p", 3: "p", **dict.fromkeys(range(4, 10), "g")}
