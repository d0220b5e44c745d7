"""Jobs of the store in the harness: submitted, due, retried, changed and listed by the test's own time."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from taskmq import RetryPolicy, TaskMQ
from taskmq.errors import JobCancelled, TaskFailed, UnsupportedFeature
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.states import JobState
from taskmq.schedule import every
from taskmq.testing import Harness


class Sold(Exception):
    pass


@pytest.fixture
def shop() -> Iterator[Harness]:
    app = TaskMQ("memory://", store="postgresql://never-reached/db")

    @app.task(name="count", queue="work")
    def count(number: int) -> int:
        return number + 1

    @app.task(name="kept", queue="work", lane="store")
    async def kept(number: int) -> int:
        await app.jobs.asubmit("count", number, job_id=f"after {number}")
        return number

    @app.task(
        name="fail", queue="work", lane="store", retry=RetryPolicy(max_attempts=3, base="10m", cap="1h", jitter=False)
    )
    async def fail() -> None:
        raise Sold("out")

    with Harness(app, timeout="50s") as harness:
        yield harness


def test_a_submitted_job_runs_when_the_test_says_so(shop: Harness) -> None:
    jobs = shop.app.jobs
    job = jobs.submit("count", 41)
    assert jobs.get(job.id).state is JobState.QUEUED

    shop.drain()

    assert job.result() == 42
    record = jobs.get(job.id)
    assert (record.state, record.attempt, record.worker) == (JobState.SUCCEEDED, 1, "test")
    assert job.state() is JobState.SUCCEEDED


def test_a_task_of_the_store_lane_is_sent_as_any_other_and_may_submit_more(shop: Harness) -> None:
    job = shop.app.tasks["kept"].send(7)
    shop.assert_sent("kept", 7)

    shop.drain()

    assert job.result() == 7
    assert shop.app.job("after 7").result() == 8
    assert shop.app.jobs.count() == 2


def test_a_job_that_is_due_later_runs_at_its_time(shop: Harness) -> None:
    job = shop.app.jobs.submit("count", 1, delay="2h")

    shop.advance("1h59m")
    assert job.state() is JobState.SCHEDULED
    shop.advance(timedelta(minutes=1))

    assert job.result() == 2
    began = shop.app.jobs.submit("count", 1, at=shop.now + timedelta(days=30))
    shop.drain()
    assert began.result() == 2


def test_a_job_that_fails_for_good_is_tried_at_its_times_and_told(shop: Harness) -> None:
    job = shop.app.tasks["fail"].send()
    began = shop.now

    with pytest.raises(Sold, match="out"):
        shop.drain()

    (failed,) = shop.failed
    assert (failed.job_id, failed.task, failed.reason, failed.attempts) == (job.id, "fail", "error", 3)
    assert shop.now - began == timedelta(minutes=30)
    assert len(shop.app.jobs.attempts(job.id)) == 2
    with pytest.raises(TaskFailed, match="out"):
        job.result()


def test_jobs_are_cancelled_held_changed_and_listed(shop: Harness) -> None:
    jobs = shop.app.jobs
    first, second, third = (
        jobs.submit("count", number, delay="1h", labels={"n": f"{number}"}) for number in range(3)
    )
    jobs.cancel(first.id, note="not needed")
    jobs.hold(second.id)
    jobs.change(third.id, args=(10,))

    shop.drain()

    assert third.result() == 11
    with pytest.raises(JobCancelled, match="not needed"):
        first.result()
    assert jobs.get(second.id).state is JobState.HELD
    assert [job.id for job in jobs.list(parse_filter("label.n:1", 0)).jobs] == [second.id]
    jobs.release(second.id)
    shop.drain()
    assert second.result() == 2


def test_schedules_are_emitted_by_the_test_s_beat(shop: Harness) -> None:
    shop.app.schedules.add("hourly", shop.app.tasks["count"], every("1h"), args=(1,))

    shop.advance("3h")
    assert len(shop.sent_to("count")) == 3
    shop.app.schedules.pause("hourly")
    shop.advance("3h")

    assert len(shop.sent_to("count")) == 3


@pytest.mark.real_time
async def test_coroutines_use_it_as_well(shop: Harness) -> None:
    job = await shop.app.jobs.asubmit("count", 1, delay="1h")
    await shop.aadvance("1h")
    assert await job.aresult() == 2


def test_an_app_without_a_store_has_none_in_a_test_either() -> None:
    app = TaskMQ("memory://")
    app.task(name="count")(lambda: None)

    with Harness(app) as harness, pytest.raises(UnsupportedFeature, match="need a store"):
        harness.app.jobs.submit("count")
