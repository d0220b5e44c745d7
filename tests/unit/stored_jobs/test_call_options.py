"""Options of one call to the store: in the task, or beside its arguments."""

from typing import Any, Unpack, cast

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobDetail
from taskmq.errors import InvalidArguments, InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.nodes import JobNeeds
from taskmq.model.states import JobState
from taskmq.options.plans import CallPlan
from taskmq.tasks.job_options import JobOptions, JobPlan, plan_job
from taskmq.tasks.task import Task
from tests.coroutines import run_by
from tests.unit.scheduler.stage import LoopClock, until
from tests.unit.stored_jobs.kit import Shop, in_shop


def _task(app: TaskMQ, name: str) -> Task[..., Any]:
    return cast("Task[..., Any]", app.tasks.get(name))


@run_by(in_shop)
async def test_a_submitted_call_runs_whatever_lane_its_task_has(shop: Shop, /) -> None:
    jobs = [await _task(shop.app, name).asubmit(20) for name in ("double", "kept")]

    assert [await job.aresult(timeout=60) for job in jobs] == [40, 21]
    assert await shop.jobs.acount() == 2


@pytest.mark.parametrize("way", ["asubmit", "asend"])
def test_options_of_the_store_are_stored_with_the_job(way: str) -> None:
    @run_by(in_shop)
    async def check(shop: Shop, /) -> None:
        first = await shop.jobs.asubmit("double", 1, delay="1h")
        call = _task(shop.app, "kept").options(
            description="for people",
            owner="ann",
            labels={"a": "b"},
            preemptible=True,
            held=True,
            depends_on=[(first, "ended")],
            tenant="acme",
            job_id="mine",
        )

        with pytest.raises(JobNotFound, match="this tenant has no job"):
            await getattr(call, way)(3)
        job = await getattr(call.with_options({"depends_on": []}), way)(3)

        record = await shop.jobs.aget("@acme:mine")
        assert (job.id, record.state) == ("@acme:mine", JobState.HELD)
        assert record.detail == JobDetail(description="for people", owner="ann", labels={"a": "b"}, preemptible=True)

    check()


@run_by(in_shop)
async def test_a_call_waits_for_the_jobs_that_its_options_name(shop: Shop, /) -> None:
    first = await _task(shop.app, "sleep").asubmit(30)
    call = _task(shop.app, "double").options(depends_on=[first])
    many = await shop.jobs.asubmit_many(call, [(1,), (2,)])

    second = await call.asubmit(4)

    assert {await job.astate() for job in (second, *many)} == {JobState.WAITING}
    record = await shop.jobs.aget(second.id)
    assert record.detail is not None
    assert record.detail.depends_on == (JobDependency(first.id),)
    assert [await job.aresult(timeout=60) for job in (second, *many)] == [8, 2, 4]


class _ClockAhead(LoopClock):
    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


@run_by(in_shop)
async def test_a_submitter_whose_clock_is_ahead_does_not_delay_its_jobs(shop: Shop, /) -> None:
    clock, shop.app.sessions.clock = shop.app.sessions.clock, _ClockAhead()
    jobs = [await shop.jobs.asubmit("double", 1), *await shop.jobs.asubmit_many("double", [(2,), (3,)])]
    shop.app.sessions.clock = clock

    assert [await job.aresult(timeout=60) for job in jobs] == [2, 4, 6]


@run_by(in_shop)
async def test_the_ids_of_jobs_submitted_together_have_the_order_of_their_calls(shop: Shop, /) -> None:
    jobs = await shop.jobs.asubmit_many("double", [(number,) for number in range(50)])

    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert [await job.aresult(timeout=60) for job in jobs] == [number * 2 for number in range(50)]


@run_by(in_shop)
async def test_both_ways_to_submit_are_the_same_submission(shop: Shop, /) -> None:
    task = _task(shop.app, "double")
    options: dict[str, Any] = {"labels": {"a": "b"}, "job_id": "mine", "priority": 7}

    await shop.jobs.asubmit(task, 1, **options)
    again = await task.options(**options).asubmit(1)

    assert again.id == "mine"
    assert await shop.jobs.acount() == 1
    with pytest.raises(JobConflict, match="mine"):
        await task.options(**options, owner="ann").asubmit(1)


@run_by(in_shop)
async def test_labels_are_merged_and_other_options_replaced(shop: Shop, /) -> None:
    call = _task(shop.app, "double").options(labels={"a": "1", "b": "2"}, owner="ann")

    job = await shop.jobs.asubmit(call, 1, labels={"b": "3"}, owner="bob")

    record = await shop.jobs.aget(job.id)
    assert record.detail is not None
    assert (record.detail.labels, record.detail.owner) == ({"a": "1", "b": "3"}, "bob")


def _plan_job(base: JobPlan, **options: Unpack[JobOptions]) -> JobPlan:
    return plan_job(base, options, task="t")


def test_requirements_of_a_job_on_its_node_are_merged() -> None:
    both = _plan_job(_plan_job(JobPlan(), resources={"cpu": 2}), place={"labels": {"zone": "a"}})
    other = _plan_job(both, resources={"cpu": 4})

    assert both.detail == JobDetail(needs=JobNeeds(resources={"cpu": 2}, labels={"zone": "a"}))
    assert other.detail == JobDetail(needs=JobNeeds(resources={"cpu": 4}, labels={"zone": "a"}))
    assert _plan_job(other, resources={"cpu": 1}, place={"labels": {"zone": "b"}}).detail == JobDetail(
        needs=JobNeeds(resources={"cpu": 1}, labels={"zone": "b"})
    )


def test_an_option_of_none_or_an_empty_one_counts_as_not_given() -> None:
    some = _plan_job(JobPlan(), description="for people", owner="ann", labels={"a": "b"}, preemptible=True)
    more = _plan_job(some, held=True, depends_on=["first"], connection="transaction")
    nothing: JobOptions = {
        "description": "", "owner": "", "labels": None, "resources": None, "place": None, "preemptible": None,
        "connection": None,
    }  # fmt: skip

    assert plan_job(more, nothing, task="t") == more
    assert plan_job(CallPlan(), {"labels": {}, "held": False}, task="t") == JobPlan()
    assert type(plan_job(CallPlan(), {"priority": 3}, task="t")) is CallPlan


def test_a_call_to_the_broker_refuses_options_of_the_store() -> None:
    with TaskMQ("memory://", store="sqlite:///:memory:") as app:

        @app.task(name="render")
        def render(number: int) -> None: ...

        call = render.options(labels={"a": "b"})
        for send in (call.send, call.s, lambda number: call.send_many([(number,)])):
            with pytest.raises(InvalidOption, match=r"labels.*\.submit\(\.\.\.\)"):
                send(1)


def test_an_invalid_store_option_names_the_task_and_the_option() -> None:
    app = TaskMQ("memory://")

    @app.task(name="render")
    def render(number: int) -> None: ...

    with pytest.raises(InvalidOption, match=r"task render: unknown option 'lables'; did you mean 'labels'\?"):
        render.with_options({"lables": {}})
    with pytest.raises(InvalidOption, match="task render: depends_on: must be a list of jobs"):
        render.options(depends_on="first")
    with pytest.raises(InvalidOption, match="task render: labels: at most 32"):
        render.options(labels={str(number): "" for number in range(33)})


def _statements(app: TaskMQ) -> None:
    @app.task(name="statement", queue="work")
    async def statement(number: int, tenant: str = "") -> str:
        return f"{number} of {tenant}"


@run_by(in_shop, also=_statements)
async def test_a_parameter_with_the_name_of_an_option_is_ambiguous(shop: Shop, /) -> None:
    task = _task(shop.app, "statement")

    with pytest.raises(
        InvalidArguments, match="tenant= is an option of submit and a parameter of the task"
    ) as caught:
        await shop.jobs.asubmit(task, 1, tenant="acme")

    assert "task.options(tenant=...).submit(...)" in str(caught.value)
    assert await shop.jobs.acount() == 0
    by_place = await shop.jobs.asubmit(task, 1, "globex", tenant="acme")
    by_name = await task.options(tenant="acme").asubmit(2, tenant="initech")
    assert [await job.aresult(timeout=60) for job in (by_place, by_name)] == ["1 of globex", "2 of initech"]
    assert {job.tenant for job in (await shop.jobs.alist()).jobs} == {"acme"}


def test_jobs_submitted_one_after_the_other_start_in_that_order() -> None:
    started: list[int] = []

    def define_note(app: TaskMQ) -> None:
        @app.task(name="note", queue="work", retry=None)
        async def note(number: int) -> None:
            started.append(number)

    async def test(shop: Shop) -> None:
        for number in range(50):
            await shop.jobs.asubmit("note", number)
        await until(lambda: len(started) == 50)

    in_shop(test, also=define_note)

    assert started == sorted(started)
