"""Owned sets of asyncio tasks."""

import asyncio

import pytest

from taskmq.durable.task_set import TaskSet


async def work(seconds: float, story: list[str]) -> None:
    try:
        await asyncio.sleep(seconds)
        story.append(f"{seconds:g}")
    except asyncio.CancelledError:
        story.append(f"{seconds:g} cancelled")
        raise


async def test_running_tasks_have_a_grace_period_and_are_then_cancelled() -> None:
    tasks, story = TaskSet("works", failure="no work"), list[str]()
    for seconds in (1, 2, 30):
        tasks.start(work(seconds, story))
    await asyncio.sleep(1.5)
    assert len(tasks) == 2
    await tasks.aclose(grace=5)
    assert (story, len(tasks)) == (["1", "2", "30 cancelled"], 0)
    await tasks.aclose(grace=5)


async def test_all_tasks_are_cancelled_at_once_without_a_grace_period() -> None:
    tasks, story = TaskSet("works", failure="no work"), list[str]()
    tasks.start(work(1, story))
    await asyncio.sleep(0.5)
    await tasks.aclose()
    assert story == ["1 cancelled"]


async def test_a_failed_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError

    tasks = TaskSet("works", failure="no work")
    tasks.start(fail())
    await asyncio.sleep(1)
    assert len(tasks) == 0
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("CRITICAL", "no work")]


async def test_tasks_started_during_the_grace_period_share_it() -> None:
    tasks, story = TaskSet("works", failure="no work"), list[str]()

    async def start_more() -> None:
        await work(1, story)
        tasks.start(work(2, story))
        tasks.start(work(30, story))

    tasks.start(start_more())
    await tasks.aclose(grace=5)
    assert (story, len(tasks)) == (["1", "2", "30 cancelled"], 0)


async def test_a_task_that_is_started_by_a_cancelled_one_is_cancelled_too() -> None:
    tasks, story = TaskSet("works", failure="no work"), list[str]()

    async def start_another() -> None:
        try:
            await work(1, story)
        finally:
            tasks.start(work(2, story))
            # Its first step, in which it begins to wait.
            await asyncio.sleep(0)

    tasks.start(start_another())
    await asyncio.sleep(0.5)
    await tasks.aclose()
    assert (story, len(tasks)) == (["1 cancelled", "2 cancelled"], 0)
