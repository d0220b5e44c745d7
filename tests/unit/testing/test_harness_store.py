"""Stored jobs in the harness: submitted, due, retried, changed and listed on the test's clock."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from taskmq import Context, JobFilter, RetryPolicy, TaskMQ, batch, chain
from taskmq.errors import InvalidOption, JobCancelled, ResultTimeout, RunFailed, TaskFailed, UnsupportedFeature
from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.states import UNDERWAY, JobState
from taskmq.schedules.triggers import cron, every
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


def test_a_submitted_job_runs_on_demand(shop: Harness) -> None:
    jobs = shop.app.jobs
    job = jobs.submit("count", 41)
    assert jobs.get(job.id).state is JobState.QUEUED

    shop.drain()

    assert job.result() == 42
    record = jobs.get(job.id)
    assert (record.state, record.attempt, record.worker) == (JobState.SUCCEEDED, 1, "test")
    assert job.state() is JobState.SUCCEEDED


def test_steps_and_progress_of_stored_jobs_are_kept_by_the_store() -> None:
    app, made = TaskMQ("memory://", store="postgresql://never-reached/db"), list[int]()

    async def make(attempt: int) -> int:
        made.append(attempt)
        return attempt

    @app.task(name="in_steps", queue="work", retry=RetryPolicy(max_attempts=2, base="10m", jitter=False))
    async def in_steps(context: Context) -> int:
        first = await context.astep("first", make, context.attempt)
        context.progress(context.attempt, 2)
        if context.attempt == 1:
            raise Sold("out")
        return first

    with Harness(app, timeout="50s") as harness:
        job = app.jobs.submit("in_steps")
        harness.drain()

        assert job.result() == 1
        assert made == [1]
        progress = job.progress()
    assert progress is not None
    assert (progress.done, progress.total, progress.attempt) == (2, 2, 2)


def test_a_sleeping_job_wakes_when_the_time_of_the_test_has_come() -> None:
    app = TaskMQ("memory://", store="postgresql://never-reached/db")

    @app.task(name="remind", queue="work")
    def remind(context: Context) -> int:
        context.sleep("30d")
        return context.attempt

    with Harness(app, timeout="50s") as harness:
        job = app.jobs.submit("remind")
        harness.advance("29d")
        assert job.state() is JobState.SCHEDULED
        harness.advance("1d")

        assert job.result() == 1


def test_a_task_of_the_store_lane_is_sent_like_any_other_and_may_submit_more(shop: Harness) -> None:
    job = shop.app.tasks["kept"].send(7)
    shop.assert_sent("kept", 7)

    shop.drain()

    assert job.result() == 7
    assert shop.app.job("after 7").result() == 8
    assert shop.app.jobs.count() == 2


def test_quotas_of_running_jobs_work_as_with_a_scheduler() -> None:
    app, under_way = _watched_app()
    with Harness(app) as harness:
        app.pools.set_quota("acme", running=2)
        jobs = [app.jobs.submit("work", number, tenant="acme") for number in range(6)]
        others = [app.jobs.submit("work", number) for number in range(4)]
        harness.drain()

        assert all(job.state() is JobState.SUCCEEDED for job in (*jobs, *others))
        assert (max(under_way["acme"]), max(under_way[""])) == (2, 4)


def test_jobs_beyond_a_limit_wait_in_the_store_as_with_a_scheduler() -> None:
    app, under_way = _watched_app(concurrency=2)
    with Harness(app) as harness:
        jobs = [app.jobs.submit("work", number) for number in range(6)]
        harness.drain()

        assert all(job.state() is JobState.SUCCEEDED for job in jobs)
        assert max(under_way[""]) == 2


def test_jobs_of_a_rate_run_at_its_pace() -> None:
    app, _ = _watched_app(rate_limit="1/m")
    with Harness(app) as harness:
        began = harness.now
        jobs = [app.jobs.submit("work", number) for number in range(5)]
        harness.drain()

        assert all(job.state() is JobState.SUCCEEDED for job in jobs)
        assert timedelta(seconds=239) < harness.now - began < timedelta(seconds=241)


def _watched_app(**options: Any) -> tuple[TaskMQ, defaultdict[str, list[int]]]:
    """Build an app with a task that counts its tenant's jobs at the broker or running."""
    app = TaskMQ("memory://", store="postgresql://never-reached/db")
    under_way: defaultdict[str, list[int]] = defaultdict(list)

    @app.task(name="work", queue="work", **options)
    async def work(context: Context, number: int) -> None:
        tenant = context.tenant or ""
        under_way[tenant].append(await app.jobs.acount(JobFilter(tenant=tenant, states=UNDERWAY)))

    return app, under_way


def test_a_job_that_is_due_later_runs_at_its_time(shop: Harness) -> None:
    job = shop.app.jobs.submit("count", 1, delay="2h")

    shop.advance("1h59m")
    assert job.state() is JobState.SCHEDULED
    shop.advance(timedelta(minutes=1))

    assert job.result() == 2
    began = shop.app.jobs.submit("count", 1, at=shop.now + timedelta(days=30))
    shop.drain()
    assert began.result() == 2


def test_a_permanently_failing_job_is_retried_on_time_and_reported(shop: Harness) -> None:
    job = shop.app.tasks["fail"].send()
    began = shop.now

    with pytest.raises(Sold, match="out"):
        shop.drain()

    (failed,) = shop.failed
    assert (failed.job_id, failed.task, failed.reason, failed.attempts) == (job.id, "fail", "error", 3)
    assert shop.now - began == timedelta(minutes=30)
    assert len(shop.app.jobs.attempts(job.id)) == 3
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


def test_a_job_runs_once_its_dependencies_have_succeeded(shop: Harness) -> None:
    jobs = shop.app.jobs
    first = jobs.submit("count", 1)
    second = jobs.submit("count", 2, depends_on=[first])
    third = jobs.submit("count", 3, depends_on=[second, first], delay="2h")
    assert second.state() is JobState.WAITING

    shop.advance("1h")

    assert (second.result(), third.state()) == (3, JobState.SCHEDULED)
    shop.drain()
    assert third.result() == 4


def test_each_policy_of_a_dependency_has_its_effect_after_a_failure(shop: Harness) -> None:
    jobs = shop.app.jobs
    bad = shop.app.tasks["fail"].send()
    conditions: tuple[DependencyCondition, ...] = ("succeeded", "ended", "failed")
    waiting = {each: jobs.submit("count", 1, depends_on=[(bad, each)]) for each in conditions}
    idle = jobs.submit("count", 1, depends_on=[(jobs.submit("count", 1), "failed")])

    shop.drain(raise_errors=False)

    ends = {each: job.state() for each, job in waiting.items()}
    assert ends == {
        "succeeded": JobState.UPSTREAM_FAILED,
        "ended": JobState.SUCCEEDED,
        "failed": JobState.SUCCEEDED,
    }
    assert idle.state() is JobState.SKIPPED
    assert [failed.job_id for failed in shop.failed] == [bad.id]


def test_cancelling_a_job_releases_its_dependents(shop: Harness) -> None:
    jobs = shop.app.jobs
    first = jobs.submit("count", 1, delay="1h")
    after = jobs.submit("count", 2, depends_on=[(first, "ended")])
    never = jobs.submit("count", 3, depends_on=[after, first])

    jobs.cancel(first.id)
    shop.advance("1s")

    assert (after.result(), never.state()) == (3, JobState.UPSTREAM_FAILED)


def test_schedules_fire_as_with_a_scheduler(shop: Harness) -> None:
    shop.app.schedules.add("hourly", shop.app.tasks["count"], every("1h"), args=(1,))

    shop.advance("3h")
    assert len(shop.sent_to("count")) == 3
    shop.app.schedules.pause("hourly")
    shop.advance("3h")

    assert len(shop.sent_to("count")) == 3


@pytest.mark.parametrize(
    ("start", "instants"),
    [
        (datetime(2027, 3, 27, tzinfo=UTC), ["27 02:30 +0100", "28 03:00 +0200", "29 02:30 +0200"]),
        (datetime(2026, 10, 24, tzinfo=UTC), ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),
    ],
)
def test_a_schedule_of_a_tenant_runs_over_a_change_of_dst(start: datetime, instants: list[str]) -> None:
    app = TaskMQ(store="postgresql://never-reached/db")
    ran: list[tuple[str, str]] = []

    @app.task(name="bill")
    def bill(month: int, ctx: Context) -> None:
        local = ctx.scheduled_for.astimezone(ZoneInfo("Europe/Berlin")) if ctx.scheduled_for else start
        ran.append((f"{ctx.tenant}:{month}", f"{local:%d %H:%M %z}"))

    with Harness(app, start=start) as harness:
        app.schedules.add("@acme:nightly", bill, cron("30 2 * * *", tz="Europe/Berlin"), args=(3,))
        harness.advance("3d")

        assert ran == [("acme:3", each) for each in instants]
        assert {job.tenant for job in app.jobs.list().jobs} == {"acme"}
        status = app.schedules.status("@acme:nightly")
        assert status.fired == 3


def test_schedules_in_code_and_those_of_workflows_fire_too() -> None:
    app = TaskMQ(store="postgresql://never-reached/db")
    ran: list[str] = []

    @app.every("1h")
    @app.task(name="tick")
    def tick() -> None:
        ran.append("tick")

    @app.task(name="add")
    def add(first: int, second: int) -> int:
        ran.append(f"{first} + {second}")
        return first + second

    with Harness(app) as harness:
        app.schedules.add("sum", chain(add.s(1, 2), add.s(3)), every("2h"))
        harness.drain()
        assert ran == []
        harness.advance("2h")

    assert sorted(ran) == ["1 + 2", "3 + 3", "tick", "tick"]


def test_a_manual_run_is_a_job_of_the_store() -> None:
    app = TaskMQ(store="postgresql://never-reached/db")
    app.task(name="count")(lambda: 7)

    with Harness(app) as harness:
        app.schedules.add("@acme:daily", app.tasks["count"], every("1d"))
        job_id = app.schedules.run("@acme:daily")
        harness.drain()

        assert app.job(job_id).result() == 7
        assert app.jobs.get(job_id).tenant == "acme"


@pytest.mark.real_time
async def test_coroutines_use_the_harness_as_well(shop: Harness) -> None:
    job = await shop.app.jobs.asubmit("count", 1, delay="1h")
    await shop.aadvance("1h")
    assert await job.aresult() == 2


def test_an_app_without_a_store_has_none_in_a_test_either() -> None:
    app = TaskMQ("memory://")
    app.task(name="count")(lambda: None)

    with Harness(app) as harness, pytest.raises(UnsupportedFeature, match="need a store"):
        harness.app.jobs.submit("count")


def test_an_app_has_a_store_in_a_test_if_a_task_needs_one() -> None:
    app = TaskMQ("memory://")

    @app.task(name="kept", lane="store")
    def kept() -> int:
        return 7

    with Harness(app) as harness:
        job = kept.send()
        harness.drain()
        assert job.result() == 7
        assert app.jobs.count() == 1
    assert app.sessions.store_url is None


def test_an_app_has_the_store_that_its_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_STORE", "postgresql://never-reached/db")
    app = TaskMQ("memory://")
    app.task(name="count")(lambda: 1)

    with Harness(app) as harness:
        job = app.jobs.submit("count")
        harness.drain()
        assert job.result() == 1


@pytest.mark.parametrize("has_store", [True, False])
def test_a_test_may_choose_whether_there_is_a_store(has_store: bool) -> None:
    app = TaskMQ("memory://", store=None if has_store else "postgresql://never-reached/db")
    app.task(name="count")(lambda: 1)

    with Harness(app, store=has_store) as harness:
        if has_store:
            assert harness.app.jobs.submit("count").id
        else:
            with pytest.raises(UnsupportedFeature, match="need a store"):
                harness.app.jobs.submit("count")


def test_an_app_with_delays_in_the_state_is_refused_a_store_as_in_production() -> None:
    app = TaskMQ("memory://", store="postgresql://never-reached/db", delay="state")
    app.task(name="count")(lambda: 1)

    with Harness(app), pytest.raises(InvalidOption, match="delay='state' with a job store"):
        app.jobs.submit("count")


def test_workflows_run_in_the_store() -> None:
    app = TaskMQ("amqp://nobody@nowhere:1/", store="postgresql://never-reached/db")

    @app.task(name="one", retry=None)
    async def one(number: int = 0) -> int:
        return number + 1

    @app.task(name="listed", retry=None)
    async def listed(number: int) -> list[int]:
        return list(range(number))

    @app.task(name="fails", retry=None)
    async def fails() -> int:
        raise Sold("out")

    graph = one.s(2) | listed.s() | one.s().each() | listed.si(2).options(delay="1h")
    with Harness(app, timeout="100ms"):
        graph.send(run_id="it")
        with pytest.raises(ResultTimeout, match="in a test, jobs run while"):
            app.runs.get("it").result()

    with Harness(app) as harness:
        run = graph.send(run_id="it")
        before = harness.now
        harness.drain()
        assert harness.now >= before + timedelta(hours=1)
        assert run.state().count("succeeded") == 7
        assert run.result() == [0, 1]

        failed = chain(one.s(1), fails.si()).send()
        with pytest.raises(Sold):
            harness.drain()
        with pytest.raises(RunFailed, match="step fails failed"):
            failed.result()

        jobs = batch(one.s(1), on_success=listed.si(1)).send()
        harness.drain()
        jobs.add(one.s(2))
        jobs.close()
        harness.drain()
        assert jobs.result() == [2, 3]
        assert failed.cancel() is False
