"""Runs in the store: named ones, their signals, parameters, timers and jobs."""

import asyncio
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from taskmq import (
    Context,
    InvalidOption,
    ResultTimeout,
    RunClosed,
    RunFailed,
    RunNotFound,
    TaskMQ,
    UnsupportedFeature,
    batch,
    chain,
    dag,
)
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import JobConflict
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.keys import run_id_of
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.validation import validate_workflow
from taskmq.operations.history.failure_lines import FailureChoice
from taskmq.operations.history.failures import TenantFailures
from taskmq.workflow.runs.ends import ends_of
from tests.servers.waiting import until
from tests.unit.app_kit import new_url
from tests.unit.workflow.shop import Shop

pytestmark = pytest.mark.real_time


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def _put(shop: Shop, name: str, steps: dict[str, Any], *, tenant: str = "", **fields: Any) -> None:
    content, faults = validate_workflow({"workflow": name, "steps": steps, **fields})
    assert content is not None, faults
    await shop.app.sessions.store().runs.put_workflow(tenant, name, encode_workflow(content)[1])


async def _jobs_of(shop: Shop, run: Any) -> dict[str, JobRecord]:
    found: dict[str, JobRecord] = {}
    for step in await run.asteps():
        if step.job and (job := await shop.app.sessions.store().get(step.job)) is not None:
            found[step.name] = job
    return found


async def test_a_stored_workflow_runs_with_parameters_and_waits_for_a_signal(shop: Shop) -> None:
    async with shop.open():
        await _put(
            shop,
            "approval",
            {
                "sum": {"task": "add", "args": ["${params.n}", 2]},
                "ok": {"wait": "approved", "needs": ["sum"]},
                "end": {"task": "add", "args": ["${steps.sum.result}", "${steps.ok.result.extra}"]},
            },
            params={"n": {"type": "integer"}},
        )
        run = await shop.app.runs.astart("approval", {"n": 5}, labels={"team": "ops"})
        with pytest.raises(InvalidOption, match="no step waits for the signal 'other'"):
            await run.asignal("other")
        await run.asignal("approved", {"extra": 10}, signal_id="s1")
        await run.asignal("approved", {"extra": 99}, signal_id="s1")

        assert await run.aresult(60) == {"end": 17}
        jobs = await _jobs_of(shop, run)
        assert jobs["end"].detail is not None
        assert jobs["end"].detail.labels == {"team": "ops"}
        with pytest.raises(InvalidOption, match="workflow nothing"):
            await shop.app.runs.astart("nothing")


async def test_a_run_with_wrong_parameters_is_not_started(shop: Shop) -> None:
    async with shop.open():
        await _put(shop, "sum", {"sum": {"task": "add", "args": ["${params.n}"]}}, params={"n": {"type": "integer"}})

        for params, reason in (
            ({}, "give 'n'"),
            ({"n": "x"}, "parameter 'n'"),
            ({"n": 1, "m": 2}, "no parameter 'm'"),
        ):
            with pytest.raises(InvalidOption, match=f"workflow sum: {reason}"):
                await shop.app.runs.astart("sum", params)

        assert (await shop.app.runs.alist()).lines == []


async def test_a_run_is_cancelled_when_its_time_is_over_and_fails(shop: Shop) -> None:
    async with shop.open():
        steps = {"ok": {"wait": "approved"}, "end": {"task": "add", "args": [1], "needs": ["ok"]}}
        await _put(shop, "slow", steps, timeout="1h")
        of_start = await shop.app.runs.astart("slow", timeout="20ms")
        sent = await shop.app.tasks["add"].options(delay="1h").s(1).asend(timeout="20ms")

        for run in (of_start, sent):
            with pytest.raises(RunFailed) as caught:
                await run.aresult(30)
            assert caught.value.failures == {"timeout": "timeout: it has not ended within 0.02 s"}
        state = await of_start.astate()
        kept = await (await shop.app.runs.astart("slow")).aget()

        with pytest.raises(InvalidOption, match="timeout='soon' is not a duration"):
            await shop.app.runs.astart("slow", timeout="soon")

    assert (state.state, state.cancelled) == ("failed", "timeout")
    assert state.steps == {"ok": "cancelled", "end": "cancelled"}
    assert kept.timeout == 3_600_000


async def test_runs_are_listed_by_workflow_state_tenant_and_time(shop: Shop) -> None:
    shop.broken = {"b"}
    async with shop.open():
        good = await shop.named.s("a").asend(name="close-day")
        bad = await shop.named.s("b").asend(name="close-month")
        theirs = await shop.named.s("c").asend(name="close-day", tenant="acme")
        await good.aresult(60)
        await theirs.aresult(60)
        with pytest.raises(RunFailed, match="b is broken"):
            await bad.aresult(60)
        runs = shop.app.runs

        assert {line.id for line in (await runs.alist()).lines} == {theirs.id, bad.id, good.id}
        assert theirs.id.startswith("@acme:")
        assert [line.id for line in (await runs.alist(workflow="close-d*", tenant="")).lines] == [good.id]
        (line,) = (await runs.alist(states=["failed"])).lines
        assert (line.id, line.workflow, line.error) == (bad.id, "close-month", "step named has failed")
        first = await runs.alist(limit=1)
        rest = await runs.alist(after=first.after)
        assert {line.id for line in (*first.lines, *rest.lines)} == {theirs.id, bad.id, good.id}
        later = datetime.now().astimezone() + timedelta(hours=1)
        assert not (await runs.alist(since=later)).lines
        with pytest.raises(InvalidOption, match="a datetime with a time zone"):
            await runs.alist(until=datetime(2027, 1, 1))  # noqa: DTZ001 - the mistake
        with pytest.raises(InvalidOption, match="unknown state 'broken' of a run"):
            await runs.alist(states=["broken"])
        with pytest.raises(InvalidOption, match="limit=0"):
            await runs.alist(limit=0)


async def test_held_runs_are_listed_by_a_state_of_their_own(shop: Shop) -> None:
    async with shop.open():
        await _put(shop, "slow", {"ok": {"wait": "approved"}})
        runs = shop.app.runs
        held, other = await runs.astart("slow"), await runs.astart("slow")
        assert await held.ahold("the bank is closed")

        assert [line.id for line in (await runs.alist(states=["held"])).lines] == [held.id]
        running = await runs.alist(states=["running", "held"])
        assert {line.id for line in running.lines} == {held.id, other.id}


async def test_a_run_of_a_tenant_is_found_by_its_chosen_id(shop: Shop) -> None:
    async with shop.open():
        run = await shop.named.s("a").asend(run_id="nightly", tenant="acme")
        assert run.id == "@acme:nightly"
        assert await shop.app.runs.get("nightly", tenant="acme").aresult(60) == "a"
        assert (await _jobs_of(shop, run))["named"].tenant == "acme"
        for stranger in ("@other:nightly", "nightly", "none"):
            with pytest.raises(RunNotFound, match="never sent to this store"):
                await shop.app.runs.get(stranger).astate()


async def test_a_step_is_a_job_with_the_options_of_its_call(shop: Shop) -> None:
    @shop.app.task(name="where", retry=None, priority=2)
    async def where(context: Context) -> str | None:
        return context.run_id

    async with shop.open():
        step = where.si().options(priority=8, meta={"a": "b"}, timeout="1m", max_attempts=2)
        run = await chain(shop.add.s(1), where.si(), step).asend()
        assert await run.aresult(60) == run.id
        jobs = await _jobs_of(shop, run)
        body = decode_envelope(jobs["where-2"].body)

    assert (jobs["where"].priority, jobs["where-2"].priority) == (2, 8)
    assert (body.root, body.step_of, body.meta) == (run.id, f"{run.id}/where-2", {"a": "b"})
    assert body.run is not None
    assert (body.run.timeout, body.run.max_attempts) == (60_000, 2)


async def test_times_of_a_step_count_from_its_turn(shop: Shop) -> None:
    async with shop.open():
        run = await chain(shop.add.s(1), shop.add.s(2).options(delay="300ms")).asend()
        assert await run.aresult(60) == 4
        first, second = await shop.app.runs.get(run.id).asteps()
    assert first.ended is not None
    assert second.ended is not None
    assert second.ended - first.ended >= 300


async def test_a_step_that_cannot_have_a_job_fails_and_says_why(shop: Shop) -> None:
    @shop.app.task(name="texts", retry=None)
    async def texts(number: str) -> str:
        return number

    anything: Any = texts
    async with shop.open():
        run = await chain(shop.add.s(1), anything.s()).asend()
        with pytest.raises(RunFailed, match="Expected `str`, got `int`"):
            await run.aresult(60)
        await _put(shop, "odd", {"a": {"task": "add", "options": {"eta": "soon"}}})
        odd = await shop.app.runs.astart("odd")
        with pytest.raises(RunFailed, match="eta='soon' is not an instant"):
            await odd.aresult(60)


async def test_the_job_of_a_failed_step_runs_again_only_with_its_run(shop: Shop) -> None:
    shop.broken = {"b"}
    async with shop.open():
        run = await chain(shop.named.s("b"), shop.add.si(1)).asend(tenant="acme")
        with pytest.raises(RunFailed, match="b is broken"):
            await run.aresult(60)
        job = (await _jobs_of(shop, run))["named"].id
        modes: tuple[RetryMode | None, ...] = (None, "resume", "new")
        for mode in modes:
            with pytest.raises(
                JobConflict, match=f"job {job} is a step of run {run.id}: .*taskmq run redrive {run.id}"
            ):
                await shop.app.jobs.aretry(job, mode=mode)

        failures = await TenantFailures(shop.app, "acme").page(FailureChoice())
        assert {line.lane: line.remedy for line in failures.lines} == {"store": "", "workflow": "redrive"}

        # A clone is a job of its own.
        shop.broken.clear()
        assert await (await shop.app.jobs.aclone(job)).aresult(60) == "b"
        assert (await run.astate()).state == "failed"
        await run.aredrive()
        assert await run.aresult(60) == 2


async def test_a_middleware_that_fails_fails_the_step(shop: Shop) -> None:
    class Broken(Middleware):
        def send(self, sending: Sending) -> AbstractContextManager[object] | None:
            raise ZeroDivisionError("no header")

    async with shop.open():
        shop.app.producer.use_middleware([Broken()])
        run = await shop.add.s(1).asend()
        with pytest.raises(RunFailed, match="ZeroDivisionError: no header"):
            await run.aresult(60)


async def test_a_maker_of_keys_that_fails_fails_the_step(shop: Shop) -> None:
    def divide(number: int) -> str:
        return str(1 // number)

    @shop.app.task(name="keyed", retry=None, idempotency_key=divide)
    async def keyed(number: int) -> int:
        return number

    async with shop.open():
        run = await (shop.add.s(-1) | keyed.s()).asend()
        with pytest.raises(RunFailed, match="ZeroDivisionError"):
            await run.aresult(60)


async def test_steps_of_tasks_that_a_scheduler_lacks_wait_for_a_worker_that_has_them(shop: Shop) -> None:
    other = TaskMQ(new_url())

    @other.task(name="elsewhere", queue="far", priority=7)
    async def elsewhere(number: int) -> int:
        return number

    async with shop.open():
        await _put(
            shop,
            "far",
            {"a": {"task": "elsewhere", "args": [1], "options": {"queue": "far", "priority": 7}}},
        )
        run = await shop.app.runs.astart("far")

        async def has_job() -> bool:
            return bool(await _jobs_of(shop, run))

        await until(has_job)
        with pytest.raises(ResultTimeout):
            await run.aresult("50ms")
        (job,) = (await _jobs_of(shop, run)).values()
        assert (job.queue, job.priority, decode_envelope(job.body).args) == ("far", 7, msgspec.Raw(b"[1]"))
        assert await run.acancel("not here")
        assert not elsewhere.call_plan.job_id


async def test_a_redrive_can_begin_at_a_step(shop: Shop) -> None:
    async with shop.open():
        graph = dag()
        first = graph.add(shop.named.s("a"), name="first")
        graph.add(shop.named.si("b"), after=[first], name="second")
        run = await graph.asend()
        assert await run.aresult(60) == {"second": "b"}
        assert isinstance(run, type(shop.app.runs.get(run.id)))
        assert await run.aredrive() == 0
        assert await run.aredrive("second") == 1
        assert await run.aresult(60) == {"second": "b"}
        with pytest.raises(InvalidOption, match="has no step 'third'"):
            await run.aredrive("third")
    assert shop.ran == ["a", "b", "b"]


async def test_a_run_without_a_scheduler_waits_and_keeps_its_events() -> None:
    shop = Shop()
    async with shop.app:
        run = await batch(shop.add.s(1)).asend()
        with pytest.raises(ResultTimeout, match=r"has not ended within 0\.01 s; it goes on"):
            await run.aresult(0.01)
        assert (await run.astate()).steps == {"jobs": "waiting"}
        assert await (await shop.add.s(1).asend()).aredrive() == 0
        async with shop.open():
            await run.aclose()
            assert await run.aresult(60) == [2]
            with pytest.raises(RunClosed, match="or is not a batch"):
                await (await shop.add.s(1).asend()).aclose()


async def test_a_stream_yields_each_step_at_its_end(shop: Shop) -> None:
    async with shop.open():
        run = await (shop.numbers.s(2) | shop.waits.s().each()).asend()
        seen: list[str] = []
        async for step in run.astream():
            seen.append(step.name)
            if step.name == "numbers":
                shop.gate.set()
        assert seen[0] == "numbers"
        assert sorted(seen[1:]) == ["waits", "waits[0]", "waits[1]"]


def test_apps_without_a_store_have_no_runs() -> None:
    app = TaskMQ(new_url())
    with app, pytest.raises(UnsupportedFeature, match="need a store"):
        app.runs.list()


def test_a_run_is_followed_by_code_without_a_loop() -> None:
    shop = Shop()
    with shop.app:
        run = shop.add.s(1).send()
        assert run.state().state == "running"
        assert shop.app.runs.get(run.id).steps()[0].task == "add"
        assert repr(run) == f"<Run {run.id}>"

        async def work() -> None:
            async with shop.open():
                assert await shop.app.runs.get(run.id).aresult(60) == 2

        asyncio.run(work())
        assert run.result(10) == 2


async def test_the_end_of_a_run_is_announced_to_callers_that_wait(shop: Shop) -> None:
    async with shop.open():
        ends = ends_of(shop.app.sessions.current())
        with ends.waiter(run_id_of("it")) as has_ended:
            await until(lambda: ends.is_listening)
            run = await shop.add.s(1).asend(run_id="it")
            async with asyncio.timeout(20):
                await has_ended.wait()
        assert await run.aresult(0) == 2
