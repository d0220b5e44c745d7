"""Announcements of submitters to schedulers, and their frequency."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import READY_TOPIC, Lane, decode_lanes
from taskmq_local import open_memory_broker
from tests.unit.store_kit import StagedStore

_PACE = 0.004


@asynccontextmanager
async def _shop(name: str) -> AsyncGenerator[tuple[TaskMQ, list[tuple[float, list[Lane]]]]]:
    """Build an app with two queues and a store, without a scheduler; record announcements and their times."""
    loop = asyncio.get_running_loop()
    heard: list[tuple[float, list[Lane]]] = []
    broker = open_memory_broker(f"memory://{name}", BrokerOptions())
    listening = await broker.listen(
        [f"{READY_TOPIC}*"], lambda _, body: heard.append((loop.time(), decode_lanes(body)))
    )
    app = TaskMQ(f"memory://{name}")
    app.sessions.job_store = lambda options: StagedStore(clock=options.clock)
    for queue in ("one", "other"):
        app.task(name=queue, queue=queue)(lambda: None)
    try:
        yield app, heard
    finally:
        await app.aclose()
        await listening.stop()
        await broker.aclose()


async def test_the_first_job_is_announced_at_once_and_later_ones_together() -> None:
    async with _shop("together") as (app, heard):
        for queue in ("one", "one", "other", "one"):
            await app.jobs.asubmit(queue)
        await asyncio.sleep(0)
        (first,) = heard

        await asyncio.sleep(2 * _PACE)

        assert first[1] == [Lane("one", 4, "")]
        assert sorted(lane for _, lanes in heard[1:] for lane in lanes) == [Lane("one", 4, ""), Lane("other", 4, "")]
        assert {round(at - first[0], 6) for at, _ in heard[1:]} == {_PACE}


async def test_a_job_is_announced_at_once_after_a_pause() -> None:
    async with _shop("at once") as (app, heard):
        for _ in range(3):
            await app.jobs.asubmit("one")
            await asyncio.sleep(_PACE)

        assert len(heard) == 3


async def test_lanes_of_a_busy_caller_are_announced_less_often() -> None:
    async with _shop("busy") as (app, heard):
        for _ in range(6):
            for _ in range(4):
                await app.jobs.asubmit("one")
            await asyncio.sleep(_PACE)
        await asyncio.sleep(0.1)
        for _ in range(2):
            await app.jobs.asubmit("one")
        await asyncio.sleep(0.1)

        *busy, last, after_a_pause = [at - heard[0][0] for at, _ in heard]
        assert [round(at, 6) for at in busy] == [0, _PACE, _PACE + 0.01, _PACE + 0.02]
        assert round(after_a_pause - last, 6) == _PACE


async def test_lanes_of_one_commit_of_many_jobs_are_announced_less_often() -> None:
    async with _shop("many") as (app, heard):
        await app.jobs.asubmit_many("one", [()] * 10)
        await app.jobs.asubmit("one")
        await asyncio.sleep(0.1)

        assert [round(at - heard[0][0], 6) for at, _ in heard] == [0, 0.01]


async def test_a_job_that_cannot_run_yet_is_not_announced() -> None:
    async with _shop("later") as (app, heard):
        await app.jobs.asubmit("one", delay=60)
        await app.jobs.asubmit("one", held=True)
        await asyncio.sleep(2 * _PACE)

        assert not heard


async def test_a_closing_app_announces_its_submissions() -> None:
    async with _shop("closing") as (app, heard):
        await app.jobs.asubmit("one")
        await app.jobs.asubmit("other")
        await app.aclose()

        assert [lane.queue for _, lanes in heard for lane in lanes] == ["one", "other"]
