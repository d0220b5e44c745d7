"""Stored jobs that run for longer than the broker's consumer timeout."""

from typing import Any

import pytest

from taskmq import Job
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import until
from tests.unit.stored_jobs.kit import Shop, in_shop
from tests.unit.worker.impatient import ALLOWED


async def _wait_until_detached(shop: Shop, job: Job[Any]) -> None:
    """Wait until the job runs without its message."""

    async def is_detached() -> bool:
        return "detached" in [event.kind for event in await shop.jobs.ahistory(job.id)]

    await until(is_detached, within=ALLOWED)


@pytest.mark.parametrize(
    "has_state",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.nightly(
                "tests/unit/stored_jobs/test_long_runs.py::"
                "test_a_run_continues_beyond_the_consumer_timeout_and_its_only_end_counts"
            ),
        ),
    ],
)
def test_a_run_continues_beyond_the_consumer_timeout_and_its_only_end_counts(has_state: bool) -> None:
    async def test(shop: Shop) -> None:
        job: Job[Any] = await shop.jobs.asubmit("sleep", ALLOWED * 3)

        await _wait_until_detached(shop, job)
        # Its message is settled, and no other worker has it.
        assert shop.worker.running == 1
        await shop.stage.pass_by(ALLOWED * 1.5)
        assert await job.astate() is JobState.RUNNING

        assert await job.aresult(timeout=ALLOWED * 2) == "slept"
        record = await shop.jobs.aget(job.id)
        assert (record.state, record.attempt, record.token >> 32) == (JobState.SUCCEEDED, 1, 1)
        assert shop.process.scheduler.status().lost == 0
        assert [event.kind for event in await shop.jobs.ahistory(job.id)] == ["detached"]

    in_shop(test, has_state=has_state, is_impatient=True)


@run_by(in_shop, is_impatient=True)
async def test_a_stopping_worker_returns_a_detached_run_without_counting_the_attempt(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", ALLOWED * 3)
    await _wait_until_detached(shop, job)

    shop.worker.requeue_now()
    await until(shop.running.done)

    await until(lambda: shop.stage.job(job.id).state is not JobState.RUNNING)
    record = shop.stage.job(job.id)
    assert record.state in {JobState.QUEUED, JobState.DISPATCHED}
    assert record.attempt == 1
    assert await shop.jobs.aattempts(job.id) == []


@run_by(in_shop, is_impatient=True)
async def test_a_run_continues_alone_if_its_scheduler_cannot_be_reached_in_time(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", ALLOWED * 1.5)
    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)

    shop.broker.hang_publishes()
    await shop.stage.pass_by(ALLOWED)
    shop.broker.release_publishes()

    assert await job.aresult(timeout=ALLOWED * 4) == "slept"
    assert (await shop.jobs.aget(job.id)).attempt == 1
    assert shop.worker.stats.ended == 1
    assert [event.kind for event in await shop.jobs.ahistory(job.id)] == ["detached"]


@pytest.mark.nightly(
    "tests/unit/stored_jobs/test_long_runs.py::test_a_run_continues_alone_if_its_scheduler_cannot_be_reached_in_time"
)
@run_by(in_shop, is_impatient=True)
async def test_a_failure_counts_after_the_broker_took_the_message_back(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("fail_late", ALLOWED + 1)
    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)
    shop.broker.hang_publishes()
    await shop.stage.pass_by(ALLOWED)
    shop.broker.release_publishes()

    await until(lambda: shop.stage.job(job.id).state is JobState.FAILED)

    assert shop.worker.stats.ended == 1
    assert shop.stage.job(job.id).attempt == 1


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::"
    "test_a_detached_job_belongs_to_its_worker_until_a_minute_after_its_last_word"
)
@run_by(in_shop, is_impatient=True)
async def test_a_run_without_its_message_reports_that_it_is_alive_until_its_end(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", ALLOWED * 4)
    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)
    # No `detached` reaches the scheduler before the broker takes the message back.
    shop.broker.hang_publishes()
    await shop.stage.pass_by(ALLOWED)
    shop.broker.release_publishes()

    assert await job.aresult(timeout=ALLOWED * 4) == "slept"

    assert shop.process.scheduler.status().lost == 0
    assert shop.process.scheduler.status().reports["accepted"] > ALLOWED * 2 / 10
    assert shop.worker.stats.ended == 1
