"""Stored jobs at a real worker: each end of a run and its effect."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from taskmq import Context, EndNews, Job, ProgressNews, TaskMQ
from taskmq.errors import BrokerUnavailable, JobCancelled, JobConflict, TaskFailed
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT
from taskmq.operations.jobs import progress_of_jobs
from tests.coroutines import run_by
from tests.unit.scheduler.stage import until
from tests.unit.stored_jobs.kit import RETRY, Shop, in_shop


@pytest.mark.parametrize("has_state", [True, False])
def test_a_submitted_job_runs_and_returns_its_result(has_state: bool) -> None:
    async def test(shop: Shop) -> None:
        job: Job[Any] = await shop.jobs.asubmit("double", 21)

        assert await job.aresult(timeout=5) == 42
        record = await shop.jobs.aget(job.id)
        assert (record.state, record.attempt, record.worker) == (JobState.SUCCEEDED, 1, "w1")
        assert record.finished is not None
        assert record.started is not None

    in_shop(test, has_state=has_state)


@pytest.mark.parametrize("has_state", [True, False])
def test_a_stored_job_is_watched_through_its_states(has_state: bool) -> None:
    async def test(shop: Shop) -> None:
        slow = await shop.jobs.asubmit("sleep", 20, delay="1m")
        assert await _states_of(slow) == [JobState.SCHEDULED, JobState.RUNNING, JobState.SUCCEEDED]
        broken = await shop.jobs.asubmit("fail", "no")
        assert (await _states_of(broken))[-2:] == [JobState.RETRYING, JobState.FAILED]

    in_shop(test, has_state=has_state)


async def _states_of(job: Job[Any]) -> list[JobState | None]:
    """Watch a job to its end; return its states, but those that pass in a moment."""
    news = [one async for one in job.watch(every="1s")]
    states = [
        one.outcome.state if isinstance(one, EndNews) else one.state
        for one in news
        if not isinstance(one, ProgressNews)
    ]
    return [state for state in states if state not in (JobState.QUEUED, JobState.DISPATCHED)]


@run_by(in_shop)
async def test_a_wait_outlives_the_state_because_the_end_is_in_the_store(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", 20)
    waits = asyncio.create_task(job.aresult(timeout=60))
    state = shop.app.sessions.current().state
    assert state is not None
    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)
    assert not waits.done()

    await state.aclose()

    assert await waits == "slept"
    assert await job.aresult(timeout=60) == "slept"


@run_by(in_shop)
async def test_a_failing_job_is_retried_by_the_policy_of_its_task_and_waits_in_the_store(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("fail", "oops")
    await until(lambda: shop.stage.job(job.id).state is JobState.RETRYING)
    waiting = await shop.jobs.aget(job.id)
    assert waiting.attempt == 2
    assert waiting.due - shop.stage.clock.now_ms() > 9_000

    with pytest.raises(TaskFailed, match="oops"):
        await job.aresult(timeout=60)

    attempts = await shop.jobs.aattempts(job.id)
    assert [(one.attempt, one.state, one.worker) for one in attempts] == [
        (number, JobState.FAILED, "w1") for number in (1, 2, 3)
    ]
    # Coroutines share a thread and a process.
    assert {(one.processor_ms, one.peak_memory) for one in attempts} == {(None, None)}
    assert all(one.error is not None and one.error.type_name == "ValueError" for one in attempts)
    assert (await shop.jobs.aget(job.id)).attempt == 3
    # The broker has no trace of it.
    assert not any(stats.ready for stats in await shop.stage.broker.stats(["work", "work.dlq", "work.jobs"]))


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("value", JobState.SUCCEEDED),
        ("reject", JobState.FAILED),
        ("unstorable", JobState.FAILED),
        ("retry", JobState.FAILED),
        ("ignore", JobState.CANCELLED),
    ],
)
@run_by(in_shop)
async def test_each_end_of_a_run_is_the_end_of_the_job(shop: Shop, /, how: str, state: JobState) -> None:
    job: Job[Any] = await shop.jobs.asubmit("end", how)

    await until(lambda: shop.stage.job(job.id).state.is_final)

    assert shop.stage.job(job.id).state is state
    assert not any(stats.ready for stats in await shop.stage.broker.stats(["work.dlq"]))


@run_by(in_shop)
async def test_a_snoozed_job_waits_in_the_store_and_its_attempt_does_not_count(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("snooze", shop.stage.clock.now_ms() + 30_000)

    assert await job.aresult(timeout=120) == "rested"

    assert (await shop.jobs.aget(job.id)).attempt == 1
    assert [one.state for one in await shop.jobs.aattempts(job.id)] == [JobState.SUCCEEDED]


@run_by(in_shop)
async def test_a_job_snoozed_forever_waits_and_affects_no_other_report(shop: Shop, /) -> None:
    never: Job[Any] = await shop.jobs.asubmit("end", "never")
    other: Job[Any] = await shop.jobs.asubmit("end", "now")

    assert await other.aresult(timeout=60) == "now"
    await until(lambda: shop.stage.job(never.id).state is JobState.SCHEDULED)

    assert shop.stage.job(never.id).due <= LAST_INSTANT
    assert await shop.stage.parked_messages() == []


def test_a_job_at_the_limit_of_its_task_keeps_the_others_in_the_store() -> None:
    def also(app: TaskMQ) -> None:
        @app.task(name="alone", queue="work", concurrency=1, retry=None)
        async def alone(seconds: float) -> None:
            await asyncio.sleep(seconds)

    async def test(shop: Shop) -> None:
        # The permit is held by a job unknown to the scheduler.
        await shop.app.tasks["alone"].asend(30.0)
        await shop.stage.pass_by(1)
        first: Job[Any] = await shop.jobs.asubmit("alone", 0.0)
        await until(lambda: shop.stage.job(first.id).state is JobState.SCHEDULED)
        others = [await shop.jobs.asubmit("alone", 0.0) for _ in range(3)]

        await shop.stage.pass_by((shop.stage.job(first.id).due - shop.stage.clock.now_ms()) / 2000)

        assert {shop.stage.job(job.id).token for job in others} == {0}

    in_shop(test, also=also)


@run_by(in_shop)
async def test_unreadable_arguments_end_the_job(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("double", 1, delay="10s")
    body = (await shop.jobs.aget(job.id)).body.replace(b'"args":[1]', b'"args":["x"]')
    shop.stage.database.ask("UPDATE job SET body = ?", body)

    with pytest.raises(TaskFailed, match="int"):
        await job.aresult(timeout=60)


@run_by(in_shop, knows_tasks=False)
async def test_a_job_with_an_unknown_task_is_refused_and_retried(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("double", 1)

    await until(lambda: shop.stage.job(job.id).state is JobState.SCHEDULED)

    record = shop.stage.job(job.id)
    assert record.attempt == 1
    assert record.error is None or "not registered" in record.error.message


@run_by(in_shop, knows_tasks=False)
async def test_a_repeatedly_refused_job_waits_longer_each_time(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("double", 1)

    await shop.stage.pass_by(40)

    refusals = [event.at // 1000 for event in await shop.jobs.ahistory(job.id) if event.kind == "refused"]
    assert [after - before for before, after in itertools.pairwise(refusals)] == [5, 10, 20]


def test_progress_and_saved_steps_of_a_job_are_available_to_its_next_attempt() -> None:
    built: list[str] = []

    async def build(month: str) -> str:
        built.append(month)
        return month.upper()

    def also(app: TaskMQ) -> None:
        @app.task(name="months", queue="work", lane="store", retry=RETRY)
        async def months(context: Context, month: str) -> str:
            found = await context.astep("build", build, month)
            context.progress(context.attempt, 2, found)
            if context.attempt == 1:
                raise ValueError(month)
            return found

    async def test(shop: Shop) -> None:
        job: Job[Any] = await shop.jobs.asubmit("months", "may", job_id="report-5", tenant="acme")
        progress: list[Any] = []
        await until(lambda: JobState.RETRYING in shop.stage.states())
        progress.append(await job.aprogress())

        assert await job.aresult(timeout=600) == "MAY"

        progress.append(await job.aprogress())
        # The store's own id finds the same run: only messages contain the name.
        record = await shop.jobs.aget(job.id)
        by_id = shop.app.job(record.id)
        assert record.id != job.id
        assert (await by_id.aprogress(), await by_id.aresult(timeout=1)) == (progress[-1], "MAY")
        assert await progress_of_jobs(shop.app, [record]) == {record.id: progress[-1]}
        assert built == ["may"]
        assert [(found.done, found.total, found.note) for found in progress] == [(1, 2, "MAY"), (2, 2, "MAY")]

    in_shop(test, also=also)


@run_by(in_shop)
async def test_a_run_of_more_than_a_quarter_of_a_second_is_seen_to_run(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", 5.0)

    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)

    assert await job.astate() is JobState.RUNNING
    assert "running on w1" in (await shop.jobs.aexplain(job.id)).reasons[0]
    assert await job.aresult(timeout=60) == "slept"


@run_by(in_shop)
async def test_a_job_with_early_acknowledgement_is_reported_as_running_before_it_runs(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("once", 5.0)

    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)

    assert await job.aresult(timeout=60) == "done"


@pytest.mark.parametrize("has_state", [True, False])
def test_a_running_job_is_stopped_on_request(has_state: bool) -> None:
    async def test(shop: Shop) -> None:
        job: Job[Any] = await shop.jobs.asubmit("sleep", 500.0)
        other: Job[Any] = await shop.jobs.asubmit("sleep", 50.0)
        await until(lambda: shop.stage.states() == {JobState.RUNNING: 2})

        record = await shop.jobs.acancel(job.id, by="ops", note="not needed")

        assert (record.state, record.cancel_requested) == (JobState.RUNNING, "not needed")
        with pytest.raises(JobCancelled, match="not needed"):
            await job.aresult(timeout=3)
        kinds = [(one.kind, one.by) for one in await shop.jobs.ahistory(job.id)]
        assert kinds[0] == ("cancel_requested", "ops")
        with pytest.raises(JobConflict, match="has ended"):
            await shop.jobs.acancel(job.id)
        assert await other.aresult(timeout=60) == "slept"

    in_shop(test, has_state=has_state)


@run_by(in_shop)
async def test_a_job_that_expires_before_it_reaches_a_worker_does_not_run(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("double", 1, delay="20s", expires="10s")

    with pytest.raises(JobCancelled):
        await job.aresult(timeout=60)

    assert shop.stage.job(job.id).state is JobState.EXPIRED


@run_by(in_shop)
async def test_reports_wait_for_an_unavailable_broker_and_acks_wait_for_reports(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", 0.1)
    await until(lambda: shop.stage.job(job.id).state is JobState.DISPATCHED)
    shop.broker.fail_publishes(3, BrokerUnavailable("away (staged)"))

    assert await job.aresult(timeout=60) == "slept"

    assert shop.stage.job(job.id).attempt == 1


@run_by(in_shop)
async def test_a_stopping_worker_requeues_the_job_and_it_runs_elsewhere(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("sleep", 50.0)
    await until(lambda: shop.stage.job(job.id).state is JobState.RUNNING)

    shop.worker.requeue_now()
    player = await shop.stage.player()
    await until(lambda: bool(player.deliveries))
    await player.finish(content_type="application/json", result=b'"elsewhere"')

    assert await job.aresult(timeout=timedelta(seconds=60)) == "elsewhere"
    assert shop.stage.job(job.id).attempt == 1


@run_by(in_shop)
async def test_a_success_frees_its_slot_before_its_report_and_is_acknowledged_after_it(shop: Shop, /) -> None:
    shop.broker.hang_publishes()
    jobs: list[Job[Any]] = [await shop.jobs.asubmit("double", number) for number in range(12)]
    jobs.append(await shop.jobs.asubmit("sleep", 0.1))
    await until(lambda: shop.worker.stats.ended == len(jobs))
    await until(lambda: shop.broker.hanging > 0)
    assert shop.worker.running == 0
    assert "Acked" not in shop.broker.kinds()

    shop.broker.release_publishes()

    assert [await job.aresult(timeout=5) for job in jobs] == [*range(0, 24, 2), "slept"]
    await until(lambda: shop.broker.kinds().count("Acked") == len(jobs))
    assert all(shop.stage.job(job.id).attempt == 1 for job in jobs)


@run_by(in_shop)
async def test_a_draining_worker_waits_for_its_reports(shop: Shop, /) -> None:
    shop.broker.hang_publishes()
    job: Job[Any] = await shop.jobs.asubmit("double", 21)
    await until(lambda: shop.broker.hanging == 1)
    shop.worker.drain()
    await asyncio.sleep(0.5)
    assert not shop.running.done()

    shop.broker.release_publishes()
    await shop.running

    assert await job.aresult(timeout=5) == 42
    assert shop.broker.kinds()[-1] == "Acked"


@run_by(in_shop)
async def test_a_worker_that_stops_before_its_report_is_confirmed_requeues_the_job(shop: Shop, /) -> None:
    shop.broker.hang_publishes()
    job: Job[Any] = await shop.jobs.asubmit("double", 21)
    await until(lambda: shop.broker.hanging == 1)
    shop.worker.requeue_now()
    await shop.running

    assert "Acked" not in shop.broker.kinds()
    assert shop.stage.job(job.id).state is JobState.DISPATCHED
    assert [stats.ready for stats in await shop.stage.broker.stats(["work.jobs"])] == [1]


@run_by(in_shop)
async def test_a_report_that_the_broker_refuses_at_first_is_published_again(shop: Shop, /) -> None:
    shop.broker.fail_publishes(2, BrokerUnavailable("away"))
    job: Job[Any] = await shop.jobs.asubmit("double", 21)

    assert await job.aresult(timeout=30) == 42
    await until(lambda: shop.broker.kinds()[-1] == "Acked")


async def _number(number: int) -> int:
    return number


async def _forward(number: int) -> object:
    return _number(number)


@pytest.mark.parametrize("keeps_result", [True, False])
def test_a_job_that_only_returned_an_awaitable_fails_with_the_reason(*, keeps_result: bool) -> None:
    def define_it(app: TaskMQ) -> None:
        app.task(name="hands_on", queue="work", result=keeps_result)(_forward)

    async def test(shop: Shop) -> None:
        job: Job[Any] = await shop.jobs.asubmit("hands_on", 7)
        await until(lambda: shop.stage.job(job.id).state.is_final)

        record = await shop.jobs.aget(job.id)
        assert (record.state, record.attempt) == (JobState.FAILED, 1)
        assert record.error is not None
        assert "returned a coroutine that was never awaited, so its work is not done" in record.error.message

    in_shop(test, also=define_it)
