"""Tasks announced over RabbitMQ, and their jobs, submitted without their code: on PostgreSQL, and on a file."""

import asyncio
import json
from collections.abc import Callable
from uuid import uuid4

import pika  # type: ignore[import-untyped]
import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import InvalidArguments
from taskmq.events.stream import as_broadcasting
from taskmq.model.commands import TASKS, command_topic
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.docs.blocks import ROOT, blocks_of
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

_PATIENCE = 60.0


@pytest.mark.real_time
async def test_a_worker_announces_its_tasks_and_another_program_submits_them(
    amqp_url: str, job_store_url: str
) -> None:
    name, queue = f"shop-{uuid4().hex[:8]}", f"work-{uuid4().hex[:8]}"
    code = TaskMQ(amqp_url, name=name)

    @code.task(name="report", queue=queue)
    async def report(month: str, *, copies: int = 1) -> str:
        return month * copies

    worker = Worker(code, WorkerConfig(name="w1"))
    scheduler = Scheduler(TaskMQ(amqp_url, store=job_store_url, name=name))
    running = [asyncio.create_task(worker.run()), asyncio.create_task(scheduler.run())]
    try:
        async with TaskMQ(amqp_url, store=job_store_url, name=name) as app:
            await _until_known(app, "report")
            with pytest.raises(InvalidArguments, match="copies"):
                await app.jobs.asubmit("report", "jan", copies="many")
            job = await app.jobs.asubmit("report", "jan", copies=2)
            assert await job.aresult(timeout=_PATIENCE) == "janjan"
            await app.definitions.aput("twice", "report", kwargs={"copies": 2})
            again = await app.jobs.asubmit("twice", "feb")
            assert await again.aresult(timeout=_PATIENCE) == "febfeb"
    finally:
        worker.drain()
        scheduler.stop()
        await asyncio.gather(*running)


@pytest.mark.real_time
async def test_the_example_of_the_wire_format_page_is_registered(
    amqp_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (body,) = [block.text for block in blocks_of(ROOT / "docs" / "wire.md") if '"tasks"' in block.text]
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/jobs.db"
    name = f"shop-{uuid4().hex[:8]}"
    told = json.dumps({**json.loads(body), "app": name})

    def publish() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        connection.channel().basic_publish("taskmq.events", "task.told", told.encode())
        connection.close()

    async with TaskMQ(amqp_url, store=store, name=name) as app:
        asked = asyncio.Event()
        broker = as_broadcasting(app.sessions.current().broker)
        await broker.listen([command_topic(TASKS)], _sets(asked))
        scheduler = Scheduler(TaskMQ(amqp_url, store=store, name=name))
        running = asyncio.create_task(scheduler.run())
        try:
            await asyncio.wait_for(asked.wait(), _PATIENCE)
            await asyncio.to_thread(publish)
            await _until_known(app, "shop.report")
            job = await app.jobs.asubmit("shop.report", "jan", delay="1h")
            assert (await app.jobs.aget(job.id)).queue == "reports"
        finally:
            scheduler.stop()
            await running


def _sets(event: asyncio.Event) -> Callable[[str, bytes], None]:
    return lambda _, __: event.set()


async def _until_known(app: TaskMQ, task: str) -> None:
    store = app.sessions.store()
    assert isinstance(store, Catalogued)
    tasks = store.tasks

    async def is_known() -> bool:
        return bool(await tasks.registrations([task]))

    await until(is_known, task)
