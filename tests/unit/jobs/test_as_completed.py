"""Waiting for many jobs, and their outcomes."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq import (
    InvalidOption,
    Job,
    JobCancelled,
    JobState,
    ResultExpired,
    ResultTimeout,
    TaskFailed,
    TaskMQ,
    UnsupportedFeature,
    as_completed,
)
from taskmq.testing import FakeClock
from taskmq.worker import Worker, WorkerConfig
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


def run(main: Coroutine[Any, Any, None]) -> None:
    async def run_with_timeout() -> None:
        # A guard against hanging; a thousand jobs take a second, and twenty of them on a very busy machine.
        async with asyncio.timeout(90):
            await main

    asyncio.run(run_with_timeout())


async def work(app: TaskMQ) -> None:
    """Let another app of the same URL run the waiting jobs."""
    await Worker(app, WorkerConfig(burst=True, name="w1")).run()


def shop(url: str, **options: Any) -> TaskMQ:
    app = TaskMQ(url, **options)

    @app.task(name="double", retry=None)
    async def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number * 2

    @app.task(name="mute", result=False)
    async def mute() -> int:
        return 1

    @app.task(name="brief", result_ttl="1m")
    async def brief() -> int:
        return 1

    @app.task(name="late", expires="1s")
    async def late() -> None: ...

    return app


async def test_jobs_are_yielded_as_they_end_with_their_outcomes() -> None:
    url = new_url()
    app = shop(url)

    jobs = [await app.tasks["double"].asend(number) for number in (1, -1, 3)]
    seen = {}
    working = asyncio.create_task(work(shop(url)))
    async for job, outcome in as_completed(jobs, timeout=10):
        seen[job.id] = outcome
    await working

    assert list(map(seen.__getitem__, [job.id for job in jobs])) == [seen[job.id] for job in jobs]
    good, bad, third = (seen[job.id] for job in jobs)
    assert (good.result(), third.result()) == (2, 6)
    assert (good.state, good.attempts, good.worker, good.error) == (JobState.SUCCEEDED, 1, "w1", None)
    assert good.started is not None
    assert good.finished is not None
    assert good.started <= good.finished <= datetime.now(UTC)
    assert bad.state is JobState.FAILED
    assert isinstance(bad.error, TaskFailed)
    with pytest.raises(TaskFailed, match="ValueError: negative"):
        bad.result()
    none: list[Job[Any]] = []
    assert [job async for job, _ in as_completed(none)] == []
    await app.aclose()


async def test_jobs_are_yielded_one_by_one_and_not_at_the_end() -> None:
    url = new_url()
    app = shop(url)

    double = app.tasks["double"]
    first, never = await double.asend(1), await double.options(delay="1h").asend(2)
    working = asyncio.create_task(work(shop(url)))
    jobs: list[Job[Any]] = [never, first]
    async for job, outcome in as_completed(jobs):
        assert (job, outcome.result()) == (first, 2)
        break
    await working
    with pytest.raises(ResultTimeout, match=r"^1 of 2 jobs have not ended within 0\.1 s; they go on$"):
        [job async for job, _ in as_completed([first, never], timeout=0.1)]
    await app.aclose()


def test_synchronous_code_iterates_too() -> None:
    url = new_url()
    with shop(url) as app:
        jobs = app.tasks["double"].send_many([(number,) for number in range(5)])
        asyncio.run(work(shop(url)))

        assert {job.id: outcome.result() for job, outcome in as_completed(jobs, timeout="10s")} == {
            job.id: number * 2 for number, job in enumerate(jobs)
        }
        for job, outcome in as_completed(jobs):
            assert outcome.result() == job.result()
            break
        assert jobs[1].outcome(timeout=5).result() == 2
        with pytest.raises(InvalidOption, match="timeout='soon'"):
            as_completed(jobs, timeout="soon")


def test_waiting_for_a_task_without_results_is_refused_at_once() -> None:
    with shop(new_url()) as app:
        job = app.tasks["mute"].send()

        for wait in (job.result, job.outcome, lambda: list(as_completed([job]))):
            with pytest.raises(UnsupportedFeature, match=r"^task mute keeps no results \(result=False\)"):
                wait()


async def test_a_result_lives_as_long_as_its_task_says_and_is_then_reported_as_gone() -> None:
    url, clock = new_url(), FakeClock()
    app = shop(url, clock=clock)

    brief, double = await app.tasks["brief"].asend(), await app.tasks["double"].asend(1)
    await work(shop(url, clock=clock))
    clock.advance("59s")
    assert await brief.aresult() == 1
    clock.advance("2s")
    for wait in (brief.aresult, brief.astate, app.job(brief.id).aresult):
        with pytest.raises(ResultExpired, match=r"has ended, but its result has expired") as caught:
            await wait()
        assert caught.value.job_id == brief.id
    outcome = await brief.aoutcome()
    assert (outcome.state, type(outcome.error)) == (None, ResultExpired)
    assert [type(one.error) async for _, one in as_completed([brief])] == [ResultExpired]
    assert await double.aresult() == 2
    # After the same time again the outcome is forgotten.
    clock.advance("1m")
    assert await brief.astate() is JobState.QUEUED
    await app.aclose()


async def test_a_cancelled_job_has_no_run_times_in_its_outcome() -> None:
    url, clock = new_url(), FakeClock()
    app = shop(url, clock=clock)

    job = await app.tasks["late"].asend()
    clock.advance("2s")
    await work(shop(url, clock=clock))
    outcome = await job.aoutcome(timeout=5)
    assert (outcome.state, outcome.started, type(outcome.error)) == (JobState.CANCELLED, None, JobCancelled)
    await app.aclose()


async def test_one_connection_waits_for_a_thousand_jobs() -> None:
    url = new_url()
    app = shop(url)

    jobs = await app.tasks["double"].asend_many([(number,) for number in range(1000)])
    working = asyncio.create_task(work(shop(url)))
    seen = [outcome.result() async for _, outcome in as_completed(jobs, timeout=60)]
    await working
    assert sorted(seen) == [number * 2 for number in range(1000)]
    await app.aclose()
