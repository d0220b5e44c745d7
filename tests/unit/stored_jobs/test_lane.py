"""Ordinary calls that go to the store because of their task or their options."""

from typing import Any, cast

import pytest

from taskmq import Job, TaskMQ
from taskmq.errors import InvalidOption, JobConflict, UnsupportedFeature
from taskmq.model.states import JobState
from taskmq.tasks.task import Task
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, define, in_shop


def _task(app: TaskMQ, name: str) -> Task[..., Any]:
    return cast("Task[..., Any]", app.tasks.get(name))


@run_by(in_shop)
async def test_a_call_of_a_store_task_is_a_job_of_the_store_and_runs(shop: Shop, /) -> None:
    job = await _task(shop.app, "kept").asend(41)

    assert (await shop.jobs.aget(job.id)).task == "kept"
    assert await job.aresult(timeout=5) == 42
    assert (await shop.jobs.aget(job.id)).state is JobState.SUCCEEDED


@run_by(in_shop)
async def test_one_call_of_another_task_goes_to_the_store_and_can_be_cancelled_there(shop: Shop, /) -> None:
    job = await _task(shop.app, "double").options(lane="store", delay="1h", priority=7).asend(21)
    record = await shop.jobs.aget(job.id)
    assert (record.state, record.priority) == (JobState.SCHEDULED, 7)

    await shop.jobs.acancel(job.id)

    assert await job.astate() is JobState.CANCELLED


@run_by(in_shop)
async def test_one_call_of_a_store_task_goes_to_the_broker(shop: Shop, /) -> None:
    job = await _task(shop.app, "kept").options(lane="broker").asend(1)

    assert await job.aresult(timeout=5) == 2
    assert await shop.jobs.acount() == 0


@run_by(in_shop)
async def test_many_calls_are_as_many_jobs_of_the_store(shop: Shop, /) -> None:
    kept = _task(shop.app, "kept")
    jobs: list[Job[Any]] = await kept.asend_many([(number,) for number in range(5)])
    jobs += [job async for job in kept.asend_stream([{"number": number} for number in range(5, 8)])]

    assert [await job.aresult(timeout=5) for job in jobs] == list(range(1, 9))
    assert await shop.jobs.acount() == 8


@run_by(in_shop)
async def test_an_id_sent_twice_is_one_job_and_with_other_arguments_a_conflict(shop: Shop, /) -> None:
    call = _task(shop.app, "kept").options(job_id="order-17", tenant="acme", delay="1m")
    first, second = await call.asend(1), await call.asend(1)

    assert first.id == second.id == "@acme:order-17"
    assert await shop.jobs.acount() == 1
    with pytest.raises(JobConflict, match="order-17"):
        await call.asend(2)


def test_a_call_without_a_store_says_what_is_missing() -> None:
    with TaskMQ("memory://") as app:
        define(app)
        with pytest.raises(UnsupportedFeature, match=r"store="):
            _task(app, "kept").send(1)


def test_a_workflow_step_may_have_either_lane() -> None:
    app = TaskMQ("memory://")
    define(app)

    assert _task(app, "kept").options(lane="broker").s(1).plan().content.steps["kept"].task == "kept"
    assert _task(app, "kept").s(1).plan().content.steps["kept"].task == "kept"


def test_there_are_two_lanes() -> None:
    app = TaskMQ("memory://")
    with pytest.raises(InvalidOption, match="lane"):
        app.task(name="odd", lane=cast("Any", "motorway"))(lambda: None)


def test_a_limited_task_cannot_be_sent_without_a_state() -> None:
    app = TaskMQ("amqp://broker", store="sqlite:///jobs.db")

    @app.task(name="call", rate_limit="20/s")
    def call() -> None: ...

    with pytest.raises(UnsupportedFeature, match=r"task call: limits of sent jobs need a state.*submit"):
        call.send()
