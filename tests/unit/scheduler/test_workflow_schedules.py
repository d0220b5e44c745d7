"""Schedules that start runs of workflows, over deaths of schedulers."""

import logging
import re
from typing import Any

import msgspec
import pytest

from taskmq import InvalidOption, TaskMQ, Workflow, batch, chain, group
from taskmq.api.workflows.definitions import StartRunBody, WorkflowBody
from taskmq.cli.operator import OperatorApi
from taskmq.contracts.jobs import NewInboxRow, RunFilter
from taskmq.model.envelope import JSON, Envelope, decode_envelope
from taskmq.model.keys import run_id_of, scheduled_job_id, tenant_key
from taskmq.model.runs.records import RunRecord, RunState
from taskmq.model.units import instant_text, to_datetime
from taskmq.run.facts import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.triggers import every
from tests.coroutines import run_by
from tests.unit.app_kit import new_url
from tests.unit.scheduler.stage import START, Process, Stage, play_one, until


def _define(app: TaskMQ) -> None:
    @app.task(name="load", queue="work", retry=None)
    async def load(name: str) -> str:
        return name

    @app.task(name="shout", queue="work", retry=None)
    async def shout(text: str) -> str:
        return text.upper()


def _play(test: Any) -> None:
    play_one(test, _define)


async def _start_scheduler(stage: Stage) -> Process:
    process = stage.start()
    await until(lambda: process.scheduler.not_ready() is None and stage.holds_all(process))
    return process


def _flow(app: TaskMQ) -> Any:
    load: Any = app.tasks["load"]
    shout: Any = app.tasks["shout"]
    return chain(load.s("a"), shout.s())


async def _runs(stage: Stage, **which: Any) -> list[RunRecord]:
    """Return the runs in the order of their instants."""
    page = await stage.store.runs.list_runs(RunFilter(**which), limit=200)
    return sorted(page.runs, key=lambda run: run.scheduled_for)


async def _envelopes(stage: Stage, run: RunRecord) -> list[Envelope]:
    jobs = [await stage.store.get(step.job) for step in await stage.store.runs.steps(run.id) if step.job]
    return [decode_envelope(job.body) for job in jobs if job is not None]


@run_by(_play)
async def test_each_occurrence_starts_one_run_over_the_death_of_a_scheduler(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    name = process.app.name
    await process.app.schedules.aadd("@acme:nightly", _flow(process.app), every("10s"))
    await stage.pass_by(25)
    await process.kill()
    process = await _start_scheduler(stage)
    await stage.pass_by(25)

    runs = await _runs(stage, tenant="acme", workflow="nightly", labels={"schedule": "nightly"})
    assert len(runs) >= 4
    instants = [START + 10_000 * number for number in range(1, len(runs) + 1)]
    assert [run.scheduled_for for run in runs] == [instant_text(at) for at in instants]
    publics = [tenant_key("acme", scheduled_job_id(name, "@acme:nightly", at)) for at in instants]
    assert [run.id for run in runs] == [run_id_of(public) for public in publics]
    status = await process.app.schedules.astatus("@acme:nightly")
    assert status.fired == len(status.history) == len(runs)
    assert (await process.app.runs.get(publics[0]).astate()).state == "running"


@run_by(_play)
async def test_steps_know_the_occurrence_and_its_schedule(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await process.app.schedules.aadd("nightly", _flow(process.app), every("10s"))
    for _ in range(2):
        await player.has(1)
        await player.finish(content_type=JSON, result=b'"a"')
    await stage.pass_by(4)

    (run,) = await _runs(stage)
    assert run.state is RunState.SUCCEEDED
    envelopes = await _envelopes(stage, run)
    assert [each.task for each in envelopes] == ["load", "shout"]
    for each in envelopes:
        assert each.meta == {SCHEDULE_NAME: "nightly", SCHEDULED_FOR: str(START + 10_000)}


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other"])
@run_by(_play)
async def test_a_schedule_of_a_workflow_limits_its_simultaneous_runs(stage: Stage, /, overlap: Any) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await process.app.schedules.aadd("nightly", _flow(process.app), every("1s"), overlap=overlap)
    worst = 0
    for turn in range(60):
        await stage.pass_by(0.5)
        if turn == 25:
            await process.kill()
            process = await _start_scheduler(stage)
        worst = max(worst, len(await _runs(stage, states=(RunState.RUNNING,))))
        if turn % 7 == 6:
            await player.finish(content_type=JSON, result=b'"a"')

    assert worst == 1
    runs = await _runs(stage)
    assert len(runs) >= 3
    assert len({run.scheduled_for for run in runs}) == len(runs)
    status = await process.app.schedules.astatus("nightly")
    assert status.fired == len(runs)
    if overlap in ("skip", "buffer_one"):
        assert status.skipped > 0
    assert any(run.cancelled for run in runs) is (overlap == "cancel_other")


@run_by(_play)
async def test_a_backfill_starts_other_runs_with_low_priority(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await process.app.schedules.aadd("nightly", _flow(process.app), every("10s"))
    await stage.pass_by(15)
    await process.app.schedules.abackfill("nightly", to_datetime(START + 10_000), to_datetime(START + 10_000))
    await stage.pass_by(4)

    runs = await _runs(stage)
    assert [run.scheduled_for for run in runs] == [instant_text(START + 10_000)] * 2
    priorities = [each.priority for run in runs for each in await _envelopes(stage, run)]
    assert sorted(priorities, key=lambda one: -1 if one is None else one) == [None, 0]


@run_by(_play)
async def test_a_scheduler_without_the_tasks_starts_the_runs_too(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await process.app.schedules.aadd("nightly", _flow(process.app), every("10s"))
    await process.kill()
    stage.define = lambda _: None
    stage.start()
    await stage.pass_by(30)

    assert len(await _runs(stage)) >= 1


@run_by(_play)
async def test_a_run_by_hand_starts_at_once_and_is_a_run_of_its_schedule(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    app = process.app
    await app.schedules.aadd("@acme:nightly", _flow(app), every("1h"))

    run_id = await app.schedules.arun("@acme:nightly")

    (run,) = await _runs(stage, tenant="acme")
    assert run_id == tenant_key("acme", run.id)
    assert run.labels == {"schedule": "nightly"}
    assert (await app.schedules.aentry("@acme:nightly")).starts == "workflow of load, shout"


@run_by(_play)
async def test_only_rule_and_policy_of_a_workflow_schedule_can_be_changed(stage: Stage, /) -> None:
    app = stage.start().app
    schedules, flow = app.schedules, _flow(app)
    await schedules.aadd("flow", flow, every("5s"))
    before = await schedules.aentry("flow")

    await schedules.achange("flow", trigger=every("7s"), catchup="skip")

    after = await schedules.aentry("flow")
    assert (after.workflow, after.trigger, after.policy.catchup) == (before.workflow, every("7s"), "skip")
    with pytest.raises(InvalidOption, match="which has its own arguments"):
        await schedules.achange("flow", args=("c",))
    await schedules.achange("flow", flow | flow)
    assert (await schedules.aentry("flow")).workflow != before.workflow


@run_by(_play)
async def test_workflows_that_cannot_be_scheduled_are_refused(stage: Stage, /) -> None:
    process = stage.start()
    app = process.app
    load: Any = app.tasks["load"]
    shout: Any = app.tasks["shout"]
    other = TaskMQ("memory://other")

    @other.task(name="load")
    async def foreign(name: str) -> str:
        return name

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (shout.s(), {}, r"shout.s\(...\) lacks arguments"),
        (lambda: None, {}, "pass a task"),
        (load.s("a"), {"args": ("b",)}, r"args= and kwargs= need a task"),
        (group(), {}, "the workflow has no task"),
        (batch(load.s("a")), {}, "a batch ends only when it is closed"),
        (chain(foreign.s("a"), foreign.s()), {}, "task load is not defined in this app"),
    ]
    for target, options, words in cases:
        with pytest.raises(InvalidOption, match=words):
            await app.schedules.aadd("x", target, every("1h"), **options)


async def test_a_workflow_cannot_be_scheduled_without_a_store() -> None:
    app = TaskMQ(new_url())
    _define(app)
    remedy = r"schedule 'nightly': workflows need a store.*`taskmq scheduler`"
    async with app:
        with pytest.raises(InvalidOption, match=remedy):
            await app.schedules.aadd("nightly", _flow(app), every("1h"))


_FILE = """
workflow: report
params: {name: {type: string}, rows: {type: integer, default: 1}}
schedule: {every: 10s, params: {name: eu}}
steps: {load: {task: load, with: {name: "${params.name} ${params.rows} ${run.scheduled_for}"}}}
"""


@run_by(_play)
async def test_the_schedule_of_a_file_starts_the_version_that_is_current_at_the_instant(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    name, api = process.app.name, OperatorApi(process.app, "acme")
    first = await api.workflows.put("report", WorkflowBody(text=_FILE))
    await stage.pass_by(12)
    await process.kill()
    process = await _start_scheduler(stage)
    api = OperatorApi(process.app, "acme")
    second = await api.workflows.put("report", WorkflowBody(text=_FILE.replace("default: 1", "default: 2")))
    await stage.pass_by(10)
    by_hand = await api.schedules.run("report")
    await stage.pass_by(1)
    await api.workflows.put("report", WorkflowBody(text=re.sub("schedule: .*", "", _FILE)))
    await stage.pass_by(30)

    runs = await _runs(stage, tenant="acme", workflow="report", labels={"schedule": "report"})
    instants = [START + 10_000, START + 20_000]
    assert [(run.version, run.scheduled_for) for run in runs[:2]] == [
        (first.version, instant_text(instants[0])),
        (second.version, instant_text(instants[1])),
    ]
    assert [run.id for run in runs] == [
        *(run_id_of(tenant_key("acme", scheduled_job_id(name, "@acme:report", at))) for at in instants),
        by_hand,
    ]
    (envelope,) = await _envelopes(stage, runs[0])
    assert envelope.kwargs == msgspec.Raw(msgspec.json.encode({"name": f"eu 1 {instant_text(instants[0])}"}))
    assert envelope.meta == {SCHEDULE_NAME: "@acme:report", SCHEDULED_FOR: str(instants[0])}
    (second_envelope,) = await _envelopes(stage, runs[1])
    assert b"eu 2 " in bytes(second_envelope.kwargs)


async def _named_flow(stage: Stage, app: TaskMQ) -> Any:
    @app.workflow(name="load-and-shout", queue="work")
    def load_and_shout() -> Workflow[str]:
        flow: Workflow[str] = _flow(app)
        return flow

    await app.workflows.store_in(stage.store.runs)
    return load_and_shout


@pytest.mark.parametrize(("overlap", "is_named"), [("skip", False), ("cancel_other", False), ("skip", True)])
@run_by(_play)
async def test_a_redriven_run_counts_for_overlap_again(stage: Stage, /, overlap: Any, is_named: bool) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    flow = await _named_flow(stage, process.app) if is_named else _flow(process.app)
    await process.app.schedules.aadd("nightly", flow, every("10s"), overlap=overlap)
    # The schedule forgets the first run when it starts the second one.
    for _ in range(2):
        await player.has(1)
        await player.finish("failed")
        await stage.pass_by(2)
    first, second = await _runs(stage)
    assert first.state is second.state is RunState.FAILED
    await stage.store.runs.send(first.id, NewInboxRow(kind="redrive", id="again"))
    await stage.pass_by(3)
    assert len(await _runs(stage, states=(RunState.RUNNING,))) == 1
    await stage.pass_by(20)

    if overlap == "skip":
        assert [run.id for run in await _runs(stage)] == [first.id, second.id]
        assert (await process.app.schedules.astatus("nightly")).skipped == 2
    else:
        found = next(run for run in await _runs(stage) if run.id == first.id)
        assert found.cancelled == "a newer occurrence of its schedule is due"


@run_by(_play)
async def test_a_queued_run_counts_for_the_overlap_policy_of_its_schedule(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    api = OperatorApi(process.app, "acme")
    text = _FILE.replace("every: 10s", "every: 1s, overlap: skip") + "max_active_runs: 1\n"
    await api.workflows.put("report", WorkflowBody(text=text))
    await api.workflows.start("report", StartRunBody(params={"name": "by hand"}))

    await stage.pass_by(10)

    runs = await _runs(stage, tenant="acme", workflow="report")
    assert [run.state for run in runs] == [RunState.RUNNING, RunState.QUEUED]
    assert (await api.schedules.get("report")).skipped


@pytest.mark.nightly(
    "tests/unit/scheduler/test_schedules.py::"
    "test_a_schedule_whose_trigger_raises_is_tried_ever_less_often_and_shows_why"
)
@run_by(_play)
async def test_a_refused_occurrence_is_tried_less_and_less_often_and_shown(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = await _start_scheduler(stage)
    api = OperatorApi(process.app, None)
    await process.app.schedules.aadd("often", await _named_flow(stage, process.app), every("10m"))
    await api.workflows.put("load-and-shout", WorkflowBody(text=_NEEDING_ROWS))
    caplog.set_level(logging.DEBUG, "taskmq.scheduler")
    await stage.pass_by(400 + 590)

    tries = [each for each in caplog.records if "starting the workflow of" in each.getMessage()]
    assert [each.levelname for each in tries] == ["WARNING"] + ["DEBUG"] * 5
    assert (await api.schedules.get("often")).refused == "workflow load-and-shout: give 'rows': it has no default"

    await api.workflows.put(
        "load-and-shout", WorkflowBody(text=_NEEDING_ROWS.replace("integer", "integer, default: 1"))
    )
    await stage.pass_by(30)
    assert len(await _runs(stage, workflow="load-and-shout")) == 2
    assert (await api.schedules.get("often")).refused == ""


_NEEDING_ROWS = """
workflow: load-and-shout
params: {rows: {type: integer}}
steps: {load: {task: load, with: {name: "${params.rows}"}}}
"""
