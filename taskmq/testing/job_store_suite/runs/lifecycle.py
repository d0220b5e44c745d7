"""Tests of runs from their start to their end."""

import random
import string

from taskmq.contracts.jobs import NewInboxRow, RunFilter, StartedRun
from taskmq.errors import InvalidOption
from taskmq.model.runs.graphs import encode_workflow, load_graph
from taskmq.model.runs.paths import LONGEST_NAME
from taskmq.model.runs.records import RunState
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.runs.kit import REFUSED_TASK, RunDriver, content_of
from taskmq.testing.runner import case

_CHAIN = {
    "first": {"task": "one", "args": ["${params.n}"]},
    "second": {"task": "two", "args": ["${steps.first.result}"]},
}


class RunLifecycles(JobStoreCase):
    """Starts, steps, values and ends."""

    @case
    async def test_a_chain_passes_its_values_on_and_has_the_last_one(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(_CHAIN, params=b'{"n":7}', schemas={"n": {}}, tenant="acme", labels={"team": "ops"})

        await driver.settle()
        job = await driver.read((await driver.step(run, "first")).job)
        assert (job.task, job.tenant, job.state) == ("one", "acme", JobState.QUEUED)
        assert await driver.arguments(run, "first") == [[7], {}]
        assert await driver.states(run) == {"first": "running"}
        await driver.finish(run, "first", value={"deep": [1, "ü"]})
        assert await driver.arguments(run, "second") == [[{"deep": [1, "ü"]}], {}]
        await driver.finish(run, "second", value="done")

        record = await driver.run(run)
        assert (record.state, record.tenant, record.labels) == (RunState.SUCCEEDED, "acme", {"team": "ops"})
        assert record.ended is not None
        assert record.ended >= record.created
        assert await driver.run_value(run) == {"second": "done"}
        assert await driver.value(run, "first") == {"deep": [1, "ü"]}
        assert [each.id for each in driver.ended] == [run]
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_a_step_with_the_longest_name_passes_its_value_on(self) -> None:
        driver = RunDriver(self.store())
        # Random, so that no database compresses it.
        name = "".join(["n", *random.choices(string.ascii_letters + string.digits, k=LONGEST_NAME - 1)])
        run = await driver.start({name: {"task": "one"}, "last": {"value": [f"${{steps.{name}.result}}"]}})
        await driver.settle()

        await driver.finish(run, name, value=7)

        assert await driver.states(run) == {name: "succeeded", "last": "succeeded"}
        assert await driver.run_value(run) == {"last": [7]}

    @case
    async def test_a_second_start_of_an_id_changes_nothing(self) -> None:
        driver = RunDriver(self.store())
        new = await driver.new_run(_CHAIN, params=b'{"n":1}', schemas={"n": {}})
        (first,) = await driver.runs.start([new])
        await driver.settle()

        (second,) = await driver.runs.start([new])

        assert first.is_new
        assert second == StartedRun(id=new.id, is_new=False, version=first.version)
        await driver.settle()
        assert len((await driver.dispatch()).jobs) == 1

    @case
    async def test_runs_that_start_together_have_a_result_each_in_order(self) -> None:
        driver = RunDriver(self.store())
        known = await driver.start({"s": {"task": "t"}})
        await driver.settle()
        new = [await driver.new_run({"s": {"task": "t"}}, workflow=f"w{number}") for number in range(3)]
        other = await driver.new_run(_CHAIN, params=b'{"n":1}', schemas={"n": {}}, parent=known)
        refused = await driver.new_run(_CHAIN, schemas={"n": {}})
        same = await driver.new_run({"s": {"task": "t"}}, id=known)

        started = await driver.runs.start([*reversed(new), same, refused, other, new[1]])

        assert [each.id for each in started] == [
            new[2].id,
            new[1].id,
            new[0].id,
            known,
            refused.id,
            other.id,
            new[1].id,
        ]
        assert [each.is_new for each in started] == [True, True, True, False, False, True, False]
        assert [bool(each.refusal) for each in started] == [False, False, False, False, True, False, False]
        assert {started[index].version for index in (0, 1, 2, 3, 6)} == {(await driver.run(known)).version}
        assert started[5].version == (await driver.run(other.id)).version
        assert await driver.runs.graph_text(started[5].version) == other.content
        assert await driver.runs.pending(limit=10) == sorted(each.id for each in (*new, other))
        assert [run.id for run in (await driver.runs.list_runs(RunFilter(parent=known))).runs] == [other.id]

    @case
    async def test_a_run_that_cannot_start_is_refused_with_the_reason(self) -> None:
        driver = RunDriver(self.store())
        new = [
            await driver.new_run(workflow="nightly"),
            await driver.new_run(workflow="nightly", version="0f"),
            await driver.new_run({"s": {"task": "t"}}, id="mine"),
        ]

        started = await driver.runs.start(new)

        assert [each.is_new for each in started] == [False] * 3
        assert [each.refusal for each in started] == [
            "there is no workflow 'nightly'",
            "workflow 'nightly' has no version '0f'",
            "'mine' is not a UUID, as ids of runs are",
        ]
        assert await driver.runs.pending(limit=10) == []
        assert await driver.runs.get("mine") is None
        assert await driver.runs.get(new[0].id) is None
        assert await driver.advance(new[0].id) == {}

    @case
    async def test_parameters_that_are_missing_get_their_defaults(self) -> None:
        driver = RunDriver(self.store())
        schemas = {"n": {"default": 5}, "m": {"default": 6}}
        run = await driver.start(
            {"s": {"task": "t", "args": ["${params.n}", "${params.m}"]}}, params=b'{"m":1}', schemas=schemas
        )

        await driver.settle()

        assert await driver.arguments(run, "s") == [[5, 1], {}]

    @case
    async def test_parameters_are_checked_by_the_version_that_runs(self) -> None:
        driver = RunDriver(self.store())
        content = content_of({"s": {"task": "t"}}, params={"n": {"type": "integer"}, "m": {"default": 6}})
        await driver.runs.put_workflow("", "nightly", content)
        wrong = [b"{}", b'{"n":"x"}', b'{"n":1,"o":2}']
        new = [await driver.new_run(workflow="nightly", params=params) for params in wrong]
        new.append(await driver.new_run({"s": {"task": "t"}}, params=b'{"n":1}'))

        started = await driver.runs.start(new)

        assert [each.is_new for each in started] == [False] * 4
        assert started[0].refusal == "give 'n': it has no default"
        assert started[1].refusal.startswith("parameter 'n': the value is not of type")
        assert started[2].refusal == "no parameter 'o': known: m, n"
        assert started[3].refusal == "no parameter 'n': it has none"
        assert await driver.runs.graph_text(encode_workflow(load_graph(new[3].content or b"").content)[0]) is None
        parent = await driver.start({"below": {"workflow": "nightly", "with": {"n": "x"}}})
        await driver.settle()
        assert (await driver.step(parent, "below")).error.startswith("parameter 'n': the value is not of type")

    @case
    async def test_a_step_whose_job_cannot_be_made_fails_with_the_reason(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(
            {"bad": {"task": REFUSED_TASK}, "after": {"task": "t", "needs": ["bad"]}, "other": {"task": "t"}}
        )

        await driver.settle()

        assert await driver.states(run) == {"bad": "failed", "after": "upstream_failed", "other": "running"}
        assert (await driver.step(run, "bad")).error == "task 'refused' is unknown"
        await driver.finish(run, "other")
        record = await driver.run(run)
        assert (record.state, record.error) == (RunState.FAILED, "step bad has failed")
        assert await driver.run_value(run) is None

    @case
    async def test_a_cancelled_run_ends_once_its_running_jobs_have_ended(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(
            {
                "running": {"task": "t", "queue": "busy"},
                "queued": {"task": "t", "queue": "idle"},
                "after": {"task": "t", "needs": ["running"]},
                "asleep": {"sleep": "1h"},
            }
        )
        await driver.settle()
        running, queued = (await driver.step(run, "running")).job, (await driver.step(run, "queued")).job
        await driver.dispatch(queue="busy")

        assert await driver.send(run, NewInboxRow(kind="cancel", id="c", error="not needed")) == "accepted"

        assert await driver.states(run) == {
            "running": "running",
            "queued": "cancelled",
            "after": "cancelled",
            "asleep": "cancelled",
        }
        assert driver.asked == [running]
        assert (await driver.read(running)).cancel_requested == "not needed"
        assert (await driver.read(queued)).state is JobState.CANCELLED
        assert (await driver.run(run)).state is RunState.RUNNING
        await driver.finish(run, "running", "cancelled")
        record = await driver.run(run)
        assert (record.state, record.cancelled) == (RunState.CANCELLED, "not needed")

    @case
    async def test_the_children_of_a_step_run_and_their_values_are_its_list(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start(
            {
                "pages": {"task": "page", "each": [10, 20, 30], "limit": 2},
                "merge": {"task": "merge", "args": ["${steps.pages.result}"]},
            }
        )
        await driver.settle()
        assert [step.key.child for step in await driver.runs.children(run, "pages")] == [0, 1]
        assert await driver.arguments(run, "pages", 1) == [[20], {}]

        await driver.finish(run, "pages", child=1, value="b")
        await driver.finish(run, "pages", child=2, value="c")
        await driver.finish(run, "pages", child=0, value="a")

        assert await driver.value(run, "pages") == ["a", "b", "c"]
        assert await driver.value(run, "pages", 2) == "c"
        assert await driver.arguments(run, "merge") == [[["a", "b", "c"]], {}]
        found = await driver.runs.children(run, "pages", after=0, limit=1)
        assert [(step.key.child, str(step.state)) for step in found] == [(1, "succeeded")]

    @case
    async def test_a_child_run_passes_its_value_to_the_step_that_started_it(self) -> None:
        driver = RunDriver(self.store())
        inner = (await driver.new_run({"i": {"task": "t", "args": ["${params.n}"]}}, schemas={"n": {}})).content
        assert inner is not None
        await driver.runs.put_workflow("acme", "inner", inner)
        run = await driver.start({"sub": {"workflow": "inner", "with": {"n": 3}}}, tenant="acme", labels={"a": "b"})
        await driver.settle()
        child = await driver.run((await driver.step(run, "sub")).job)
        assert (child.parent, child.parent_step, child.depth, child.labels) == (run, "sub", 1, {"a": "b"})
        assert await driver.arguments(child.id, "i") == [[3], {}]

        await driver.finish(child.id, "i", value=9)

        assert await driver.value(run, "sub") == {"i": 9}
        assert [each.id for each in driver.ended] == [child.id, run]

    @case
    async def test_runs_of_one_transaction_start_their_own_child_runs(self) -> None:
        driver = RunDriver(self.store())
        await driver.runs.put_workflow("", "inner", content_of({"i": {"wait": "go"}}))
        steps = {"sub": {"workflow": "inner"}, "missing": {"workflow": "nothing"}}
        runs = [await driver.start(steps, labels={"number": str(number)}) for number in range(3)]

        advanced = await driver.advance(*runs)

        for number, run in enumerate(runs):
            child = await driver.run((await driver.step(run, "sub")).job)
            assert (child.parent, child.labels) == (run, {"number": str(number)})
            assert advanced[run].woken == (child.id,)
            assert advanced[run].has_more
        await driver.settle()
        assert {(await driver.step(run, "missing")).error for run in runs} == {"there is no workflow 'nothing'"}

    @case
    async def test_a_cancelled_run_cancels_its_child_runs(self) -> None:
        driver = RunDriver(self.store())
        inner = (await driver.new_run({"i": {"wait": "go"}})).content
        assert inner is not None
        await driver.runs.put_workflow("", "inner", inner)
        run = await driver.start({"sub": {"workflow": "inner"}, "missing": {"workflow": "nothing", "may_fail": True}})
        await driver.settle()
        assert (await driver.step(run, "missing")).error == "there is no workflow 'nothing'"

        assert await driver.send(run, NewInboxRow(kind="cancel", id="c", error="stop")) == "accepted"

        child = (await driver.step(run, "sub")).job
        assert (await driver.run(child)).cancelled == "stop"
        assert (await driver.run(run)).state is RunState.CANCELLED

    @case
    async def test_a_held_run_records_ends_and_makes_no_jobs_until_it_is_released(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"a": {"task": "t"}, "b": {"task": "t", "args": ["${steps.a.result}"]}})
        await driver.settle()

        assert await driver.send(run, NewInboxRow(kind="hold", id="h", error="disk full")) == "accepted"
        await driver.finish(run, "a", value=4)

        assert (await driver.run(run)).held == "disk full"
        assert await driver.states(run) == {"a": "succeeded"}
        assert await driver.runs.pending(limit=10) == []
        assert await driver.send(run, NewInboxRow(kind="release", id="r")) == "accepted"
        assert (await driver.run(run)).held is None
        assert await driver.arguments(run, "b") == [[4], {}]

    @case
    async def test_a_hold_of_a_run_holds_the_runs_below_it_until_it_is_released(self) -> None:
        driver = RunDriver(self.store())
        await driver.runs.put_workflow("", "inner", content_of({"i": {"wait": "go"}, "j": {"task": "t"}}))
        await driver.runs.put_workflow("", "middle", content_of({"m": {"workflow": "inner"}}))
        run = await driver.start({"sub": {"workflow": "middle"}, "other": {"workflow": "inner"}})
        await driver.settle()
        middle, other = [(await driver.step(run, name)).job for name in ("sub", "other")]
        inner = (await driver.step(middle, "m")).job
        await driver.send(other, NewInboxRow(kind="hold", id="o", error="by hand"))

        assert await driver.send(run, NewInboxRow(kind="hold", id="h", error="disk full")) == "accepted"

        reason = f"run {run} is held: disk full"
        assert [(await driver.run(each)).hold for each in (middle, inner, other)] == [reason, reason, "by hand"]
        held = await driver.runs.list_runs(RunFilter(states=(RunState.RUNNING,), is_held=True))
        assert {each.id for each in held.runs} == {run, middle, inner, other}
        assert await driver.send(inner, NewInboxRow(kind="release", id="i")) == "held above"

        assert await driver.send(run, NewInboxRow(kind="release", id="r")) == "accepted"

        assert [(await driver.run(each)).hold for each in (middle, inner, other)] == [None, None, "by hand"]

    @case
    async def test_a_redrive_runs_the_steps_that_failed(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"good": {"task": "t"}, "bad": {"task": "t", "args": ["${steps.good.result}"]}})
        await driver.settle()
        await driver.finish(run, "good", value=4)
        await driver.finish(run, "bad", "failed")
        assert (await driver.run(run)).state is RunState.FAILED
        failed = (await driver.step(run, "bad")).job

        assert await driver.send(run, NewInboxRow(kind="redrive", id="r")) == "accepted"

        assert await driver.states(run) == {"good": "succeeded", "bad": "running"}
        assert await driver.arguments(run, "bad") == [[4], {}]
        assert (await driver.step(run, "bad")).earlier == (failed,)
        await driver.finish(run, "bad", value=5)
        assert (await driver.run(run)).state is RunState.SUCCEEDED
        assert await driver.run_value(run) == {"bad": 5}

    @case
    async def test_a_list_of_runs_continues_after_its_cursor_only(self) -> None:
        driver = RunDriver(self.store())
        first, second = [await driver.start(_CHAIN, params=b'{"n":7}', schemas={"n": {}}) for _ in range(2)]

        page = await driver.runs.list_runs(limit=1)
        rest = await driver.runs.list_runs(after=page.after, limit=1)

        assert [run.id for run in (*page.runs, *rest.runs)] == [second, first]
        assert rest.after is None
        try:
            await driver.runs.list_runs(after="none")
        except InvalidOption:
            pass
        else:
            raise AssertionError("the cursor of no list was accepted")
