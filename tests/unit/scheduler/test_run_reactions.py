"""Reactions to ends of runs of workflows."""

from functools import partial
from typing import Any

import msgspec
import pytest

from taskmq import InvalidOption, TaskMQ
from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.filters import JobFilter
from taskmq.reactions import (
    ReactionEvent,
    ReactionRule,
    RunEnded,
    all_of,
    any_of,
    job,
    run,
)
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.coroutines import run_by
from tests.unit.scheduler.reaction_kit import list_calls, put_reaction, reactions_of
from tests.unit.scheduler.stage import Stage, play_one

_WAITS: dict[str, Any] = {"ok": {"wait": "go"}}
_SLEEPS: dict[str, Any] = {"now": {"sleep": 0}}


def _define(app: TaskMQ) -> None:
    app.task(name="load", queue="work")(lambda: None)

    @app.on(run("nightly*", ["failed", "cancelled"]))
    @app.task(name="alarm", queue="calls", lane="store")
    def alarm(ended: RunEnded) -> None: ...

    @app.task(name="tidy", queue="calls")
    def tidy(ended: RunEnded) -> None: ...

    @app.task(name="publish", queue="calls")
    def publish(events: list[ReactionEvent]) -> None: ...


_play = partial(play_one, define=_define)


async def _start(stage: Stage, steps: dict[str, Any], **fields: Any) -> str:
    """Start a run, and let schedulers advance it."""
    run_id = await RunDriver(stage.store).start(steps, **fields)
    await stage.pass_by(8)
    return run_id


async def _send(stage: Stage, run_id: str, **fields: Any) -> None:
    assert await stage.store.runs.send(run_id, NewInboxRow(**fields))
    await stage.pass_by(8)


@run_by(_play)
async def test_each_end_of_a_matching_run_calls_the_task_once(stage: Stage, /) -> None:
    stage.start()
    stage.start()
    nightly = await _start(stage, _WAITS, workflow="nightly-report", tenant="acme")
    other = await _start(stage, _WAITS, workflow="hourly")
    await _start(stage, _SLEEPS, workflow="nightly-report")
    for each in (nightly, other):
        await _send(stage, each, kind="cancel", id="c")

    assert await list_calls(stage, "alarm") == [[("nightly-report", "cancelled")]]
    (call,) = (await stage.store.list_jobs(JobFilter(tasks=("alarm",)))).jobs
    (ended,) = msgspec.json.decode(bytes(decode_envelope(stage.job(call.id).body).args), type=tuple[RunEnded])
    assert (ended.run_id, ended.scheduled_for) == (f"@acme:{nightly}", "")


@run_by(_play)
async def test_a_run_that_ends_again_after_a_redrive_calls_the_task_again(stage: Stage, /) -> None:
    stage.start()
    run_id = await _start(stage, _WAITS, workflow="nightly")
    await _send(stage, run_id, kind="cancel", id="first")
    await _send(stage, run_id, kind="redrive", id="again")
    await _send(stage, run_id, kind="cancel", id="second")

    assert await list_calls(stage, "alarm") == [[("nightly", "cancelled")]] * 2


@run_by(_play)
async def test_runs_that_end_while_no_scheduler_reacts_are_found_by_the_next(stage: Stage, /) -> None:
    first = stage.start()
    early = await _start(stage, _WAITS, workflow="nightly")
    late = await _start(stage, _WAITS, workflow="nightly")
    await _send(stage, early, kind="cancel", id="c")
    await first.kill()

    # The run ends without a scheduler that would look for it.
    driver = RunDriver(stage.store)
    await driver.runs.send(late, NewInboxRow(kind="cancel", id="c"))
    await driver.settle()
    assert len(await list_calls(stage, "alarm")) == 1
    await stage.pass_by(60)
    stage.start()
    await stage.pass_by(40)

    assert await list_calls(stage, "alarm") == [[("nightly", "cancelled")]] * 2


@run_by(_play)
async def test_many_runs_that_end_at_one_instant_are_all_seen(stage: Stage, /) -> None:
    driver = RunDriver(stage.store)
    runs = [await driver.start(_WAITS, workflow="nightly") for _ in range(501)]
    for each in runs:
        await driver.runs.send(each, NewInboxRow(kind="cancel", id="c"))
    await driver.settle()
    stage.start()
    await stage.pass_by(60)

    assert len(await list_calls(stage, "alarm")) == 501


@run_by(_play)
async def test_a_stored_reaction_counts_ends_since_it_was_made(stage: Stage, /) -> None:
    process = stage.start()
    await _start(stage, _SLEEPS, workflow="hourly")
    await put_reaction(stage, process, "tidy-up", "tidy", {"kind": "run", "workflow": "hourly"})
    await _start(stage, _SLEEPS, workflow="hourly")
    await _start(stage, _SLEEPS, workflow="daily")

    assert await list_calls(stage, "tidy") == [[("hourly", "succeeded")]]
    await reactions_of(process).remove("tidy-up")
    await stage.pass_by(2)
    await _start(stage, _SLEEPS, workflow="hourly")
    assert len(await list_calls(stage, "tidy")) == 1


@run_by(_play)
async def test_the_end_of_a_run_and_that_of_a_job_are_joined(stage: Stage, /) -> None:
    process = stage.start()
    parts = [{"kind": "run", "workflow": "hourly"}, {"kind": "job", "tasks": ["load"], "states": ["cancelled"]}]
    await put_reaction(stage, process, "publish-prices", "publish", {"kind": "all_of", "parts": parts})
    await _start(stage, _SLEEPS, workflow="hourly")
    assert await list_calls(stage, "publish") == []
    (cancelled,) = await stage.submit(task="load", held=True)
    await process.app.jobs.acancel(cancelled)
    await stage.pass_by(5)

    assert await list_calls(stage, "publish") == [[("hourly", "succeeded"), ("load", "cancelled")]]


@run_by(_play)
async def test_a_stored_reaction_to_runs_that_cannot_work_is_refused(stage: Stage, /) -> None:
    process = stage.start()
    for when, reason in (
        ({"kind": "run", "workflow": ""}, "give the name of a workflow"),
        ({"kind": "run", "workflow": ["hourly"]}, "when: give"),
        (
            {"kind": "run", "workflow": "hourly", "states": ["running"]},
            "a run ends as succeeded, failed or cancelled",
        ),
    ):
        with pytest.raises(InvalidOption, match=reason):
            await reactions_of(process).put("a", ReactionRule(task="tidy", when=when))


def test_a_reaction_to_runs_alone_needs_a_scheduler_and_no_beat() -> None:
    app = TaskMQ("memory://")
    _define(app)
    app.on(all_of(run("hourly"), job("load")))(app.tasks["publish"])

    @app.on(any_of(run("hourly"), job("load")))
    @app.task(name="either", queue="calls")
    def either_ended(events: list[ReactionEvent]) -> None: ...

    alarm, publish = app.reactions["alarm"], app.reactions["publish"]
    assert (alarm.needs_scheduler, alarm.needs_beat) == (True, False)
    assert (publish.needs_scheduler, publish.needs_beat) == (False, True)
    # The worker that runs the job sees its end.
    either = app.reactions["either"]
    assert (either.needs_scheduler, either.needs_beat) == (False, False)
    with pytest.raises(InvalidOption, match="the task must accept a RunEnded"):
        app.on(run("hourly"))(app.tasks["load"])
