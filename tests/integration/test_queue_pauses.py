"""A paused queue, on a real RabbitMQ with a real Redis, and a worker in a separate process."""

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.events.stream import as_broadcasting
from taskmq.model.commands import QUEUES, QueuePause, command_topic, decode_command
from taskmq.model.states import JobState
from taskmq.operations.queues import find_pauses, pause_queues, resume_queues
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.cli.kit import SHOP, Started, names_in, run_here
from tests.servers import eventually
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

_PATIENCE = 60.0


@pytest.mark.nightly("tests/cli/test_queue.py::test_workers_stop_and_start_with_a_pause_even_over_a_restart")
def test_a_pause_survives_restarts_and_requeues_prefetched_jobs(
    tmp_path: Path, amqp_url: str, redis_url: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url, "TASKMQ_APP": "shop:app"}

    def taskmq(*words: str) -> str:
        done = run_here(tmp_path, *words, env=env)
        assert done.code == 0, done.err
        return done.out

    def waiting() -> int:
        return len(names_in("images", url=amqp_url))

    def show() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(taskmq("queue", "show", "images", "-o", "json"))
        return found

    with Started(tmp_path, "worker", "shop:app", "-c", "1", "--grace", "0s", env=env) as worker:
        worker.says("waiting for jobs")
        taskmq("send", "shop.sleep", "--args", "[3600]")
        taskmq("send", "shop.double", "--args", "[1]")
        eventually(lambda: waiting() == 0, "both are in the worker's hands")

        # A quorum queue drops the consumer of `waiting` some time after that has closed. Each poll of `show` is such
        # a consumer, too: assertions use the earlier output, not another poll.
        shown = eventually(
            lambda: found if (found := show())["consumers"] == 1 else None, "the worker alone consumes"
        )
        assert shown is not None
        assert (shown["ready"], shown["in_hand"], shown["delayed"]) == (0, 2, None)
        assert len(shown["workers"]) == 1

        taskmq("queue", "pause", "images", "--note", "a test")

        worker.says("queue 'images' paused (a test)")
        eventually(waiting, "the one that has not begun is given back")
        assert waiting() == 1
    assert "paused since" in taskmq("queue", "list", "-Q", "images")

    with Started(tmp_path, "worker", "shop:app", "-c", "2", "--grace", "0s", env=env) as worker:
        worker.says("queue 'images' paused (a test)")
        assert waiting() == 2
        taskmq("queue", "resume", "images")
        eventually(lambda: waiting() == 0, "both are in the worker's hands")


@pytest.mark.nightly(
    "tests/integration/test_features_without_redis.py::test_stored_jobs_have_every_feature_with_postgresql_alone"
)
@pytest.mark.real_time
async def test_without_a_state_the_store_holds_pauses_for_schedulers_and_workers(
    amqp_url: str, job_store_url: str
) -> None:
    name, queue = f"shop-{uuid4().hex[:8]}", f"work-{uuid4().hex[:8]}"

    async def double(number: int) -> int:
        return 2 * number

    def new_app() -> TaskMQ:
        app = TaskMQ(amqp_url, store=job_store_url, name=name)
        app.task(name="double", queue=queue)(double)
        return app

    async def is_seen(worker: Worker, paused: list[str]) -> None:
        await until(lambda: worker.status().paused == paused)

    app = TaskMQ(amqp_url, store=job_store_url, name=name)
    task = app.task(name="double", queue=queue)(double)
    async with app:
        schedulers = [Scheduler(new_app()), Scheduler(new_app())]
        running = [asyncio.create_task(scheduler.run()) for scheduler in schedulers]
        announcements: list[bytes] = []
        broker = as_broadcasting(app.sessions.current().broker)
        listening = await broker.listen([command_topic(QUEUES)], lambda _, body: announcements.append(body))
        await pause_queues(app, [queue], note="maintenance", by="ann")
        # The app announces them, and then each scheduler what it has read.
        await until(lambda: sum(queue in (decode_command(body).paused or ()) for body in announcements) >= 3)
        before = await app.jobs.asubmit("double", 1)
        await task.asend(2)
        worker = Worker(new_app(), WorkerConfig(name="w1", control=False))
        running.append(asyncio.create_task(worker.run()))
        try:
            await is_seen(worker, [queue])
            assert (await app.jobs.aget(before.id)).state is JobState.QUEUED
            assert await find_pauses(app) == {queue: QueuePause(ANY, "maintenance", "ann")}
            explained = await app.jobs.aexplain(before.id)
            assert explained.reasons[0].startswith(f"queue {queue!r} has been paused since ")

            assert await resume_queues(app, [queue]) == [queue]
            assert await before.aresult(timeout=_PATIENCE) == 2
            await is_seen(worker, [])
            await until(lambda: worker.status().ended == 2)

            await pause_queues(app, [queue])
            await is_seen(worker, [queue])
        finally:
            worker.drain()
            for scheduler in schedulers:
                scheduler.stop()
            await asyncio.gather(*running)
            await listening.stop()
        assert len(announcements) < 100, "schedulers answer each other's announcements"
