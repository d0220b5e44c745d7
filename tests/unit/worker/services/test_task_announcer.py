"""Announcements of a worker's tasks, and their times."""

import asyncio

from taskmq import TaskMQ
from taskmq.durable.service import ServiceGroup
from taskmq.events.stream import as_broadcasting
from taskmq.model.jobs.registrations import TASKS_TOLD, ToldTasks, decode_told
from taskmq.worker.services.task_announcer import TaskAnnouncer
from taskmq_local import forget_memory
from tests import virtual_time
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.worker.services.test_commands import tell
from tests.unit.worker.services.test_event_publisher import run, working

_NAME = "task-announcer"


def _app() -> TaskMQ:
    app = TaskMQ(f"memory://{_NAME}", name="shop")

    @app.task(name="b", queue="work")
    async def b(number: int) -> None:
        """The second."""

    @app.task(name="a", queue="work")
    async def a() -> None: ...

    return app


async def _hear_tasks(app: TaskMQ) -> list[ToldTasks]:
    heard: list[ToldTasks] = []
    broker = as_broadcasting(app.sessions.current().broker)
    await broker.listen([TASKS_TOLD], lambda _, body: heard.append(decode_told(body)))
    return heard


def test_a_worker_announces_its_tasks_at_its_start_and_every_ten_minutes() -> None:
    async def main() -> None:
        async with _app() as app:
            heard = await _hear_tasks(app)
            broker = as_broadcasting(app.sessions.current().broker)
            async with ServiceGroup() as services:
                await services.start(TaskAnnouncer(broker, app, worker="w1"), "announcer")
                await asyncio.sleep(1)
                assert [(told.app, told.worker) for told in heard] == [("shop", "w1")]
                assert [task.task for task in heard[0].tasks] == ["a", "b"]
                assert heard[0].tasks[1].description == "The second."
                await asyncio.sleep(1_300)
                assert heard == [heard[0]] * 3

    try:
        virtual_time.run(main())
    finally:
        forget_memory(_NAME)


def test_a_worker_answers_several_requests_for_its_tasks_together_and_soon() -> None:
    async def main() -> None:
        async with _app() as app:
            heard = await _hear_tasks(app)
            broker = as_broadcasting(app.sessions.current().broker)
            async with ServiceGroup() as services:
                announcer = TaskAnnouncer(broker, app, worker="w1")
                await services.start(announcer, "announcer")
                await asyncio.sleep(10)
                for _ in range(5):
                    announcer.wake()
                await asyncio.sleep(5)
                assert len(heard) == 2

    try:
        virtual_time.run(main())
    finally:
        forget_memory(_NAME)


@run_by(run)
async def test_a_running_worker_answers_requests_for_its_tasks(app: TaskMQ, /) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    heard = await _hear_tasks(app)
    async with working(app):
        (answer,) = await tell(app, "tasks", "w")
        assert answer.verdict == "done"
        await until(lambda: len(heard) >= 2)
    assert {told.worker for told in heard} == {"w"}
