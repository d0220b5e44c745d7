"""Reactions that are made, changed and removed while schedulers run."""

from functools import partial
from typing import Any

import pytest

from taskmq import InvalidOption, TaskMQ
from taskmq.errors import ReactionNotFound
from taskmq.reactions import JobEnded, ReactionEvent, ReactionRule, StoredReactions, job
from tests.coroutines import run_by
from tests.unit.scheduler.reaction_kit import list_calls, put_reaction, reactions_of
from tests.unit.scheduler.stage import Stage, play_one

_ANY_END = ["succeeded", "failed", "cancelled", "expired", "skipped", "upstream_failed"]


def _define(app: TaskMQ) -> None:
    for name in ("load", "check", "other"):
        app.task(name=name, queue="work")(lambda: None)

    @app.task(name="tidy", queue="calls")
    def tidy(ended: JobEnded) -> None: ...

    @app.task(name="publish", queue="calls")
    def publish(events: list[ReactionEvent]) -> None: ...


def _ends_of(*tasks: str, states: list[str] = ["succeeded"]) -> dict[str, Any]:  # noqa: B006 - read only
    return {"kind": "job", "tasks": [*tasks], "states": states}


@run_by(partial(play_one, define=_define))
async def test_every_end_calls_the_task_once(stage: Stage, /) -> None:
    process = stage.start()
    stage.start()
    (early,) = await stage.submit(task="load", held=True)
    await process.app.jobs.acancel(early)
    await stage.pass_by(1)
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load", states=_ANY_END))
    (cancelled,) = await stage.submit(task="load", held=True)
    await stage.submit(3, task="load")
    await stage.submit(task="other")
    player = await stage.player_of_declared()
    await player.has(4)
    envelopes = player.envelopes
    await player.finish("failed")
    for envelope in envelopes:
        await player.report(envelope, "failed")
    await process.app.jobs.acancel(cancelled)
    await stage.pass_by(5)

    assert await list_calls(stage, "tidy") == [[("load", "cancelled")], *[[("load", "failed")]] * 3]


@run_by(partial(play_one, define=_define))
async def test_two_of_three_events_call_the_task_within_the_limit(stage: Stage, /) -> None:
    process = stage.start()
    when = {"kind": "at_least", "count": 2, "parts": [_ends_of("load"), _ends_of("check"), _ends_of("other")]}
    await put_reaction(stage, process, "publish-prices", "publish", when, limit="1m")
    player = await stage.player_of_declared()

    async def end(task: str) -> None:
        await stage.submit(task=task)
        await player.has(1)
        await player.finish()
        await stage.pass_by(2)

    await end("load")
    assert await list_calls(stage, "publish") == []
    await end("other")
    assert await list_calls(stage, "publish") == [[("load", "succeeded"), ("other", "succeeded")]]
    await end("check")
    await stage.pass_by(70)
    await end("load")

    assert len(await list_calls(stage, "publish")) == 1
    status = await reactions_of(process).status(await reactions_of(process).get("publish-prices"))
    assert (status.fired, status.dropped, status.waiting) == (1, 1, 0)


@run_by(partial(play_one, define=_define))
async def test_a_quiet_time_calls_the_task_although_its_scheduler_died(stage: Stage, /) -> None:
    process = stage.start()
    when = {"kind": "any_of", "parts": [_ends_of("load"), _ends_of("check")]}
    await put_reaction(stage, process, "publish-prices", "publish", when, debounce="10s")
    await stage.submit(3, task="load")
    player = await stage.player_of_declared()
    await player.has(3)
    await player.finish()
    await stage.pass_by(3)
    await process.kill()
    stage.start()
    await stage.pass_by(40)

    assert await list_calls(stage, "publish") == [[("load", "succeeded")]]


@run_by(partial(play_one, define=_define))
async def test_a_replaced_reaction_keeps_its_events_and_a_removed_one_calls_nothing(stage: Stage, /) -> None:
    process = stage.start()
    when = {"kind": "all_of", "parts": [_ends_of("load"), _ends_of("check")]}
    await put_reaction(stage, process, "publish-prices", "publish", when)
    player = await stage.player_of_declared()
    await stage.submit(task="load")
    await player.has(1)
    await player.finish()
    await stage.pass_by(2)

    await put_reaction(stage, process, "publish-prices", "publish", when)
    await stage.submit(task="check")
    await player.has(1)
    await player.finish()
    await stage.pass_by(2)
    assert len(await list_calls(stage, "publish")) == 1

    await reactions_of(process).remove("publish-prices")
    await stage.pass_by(2)
    for task in ("load", "check"):
        await stage.submit(task=task)
    await player.has(2)
    await player.finish()
    await stage.pass_by(5)

    assert len(await list_calls(stage, "publish")) == 1
    with pytest.raises(ReactionNotFound, match="no reaction 'publish-prices'"):
        await reactions_of(process).remove("publish-prices")


@run_by(partial(play_one, define=_define))
async def test_a_changed_condition_counts_no_earlier_ends(stage: Stage, /) -> None:
    process = stage.start()
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("check", states=["cancelled"]))
    early, late = await stage.submit(2, task="load", held=True)
    await process.app.jobs.acancel(early)
    await stage.pass_by(2)
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load", states=["cancelled"]))
    await process.kill()
    # The next scheduler reads the ends of the last hour.
    process = stage.start()
    await stage.pass_by(40)
    assert await list_calls(stage, "tidy") == []

    await process.app.jobs.acancel(late)
    await stage.pass_by(2)
    assert await list_calls(stage, "tidy") == [[("load", "cancelled")]]


@run_by(partial(play_one, define=_define))
async def test_a_reaction_is_decoded_again_only_if_its_definition_changed(stage: Stage, /) -> None:
    process = stage.start()
    app = process.app
    reactions = StoredReactions(app.name, app.tasks, app.reactions, process.store.schedules)
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load"))
    await put_reaction(stage, process, "tidy-too", "tidy", _ends_of("load"))
    first, second = await reactions.list_all()
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load", states=["failed"]))

    changed, same = sorted(await reactions.list_all(), key=lambda each: each.name, reverse=True)

    assert (first.name, second.name) == ("tidy-too", "tidy-up")
    assert same is first
    assert changed.plan != second.plan
    await reactions.remove("tidy-too")
    assert await reactions.list_all() == [changed]


@run_by(partial(play_one, define=_define))
async def test_a_reaction_that_cannot_be_read_is_logged_once(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load"))
    bare = TaskMQ("memory://", name=process.app.name)
    others = StoredReactions(bare.name, bare.tasks, bare.reactions, process.store.schedules)

    for _ in range(3):
        assert await others.list_all() == []

    assert caplog.text.count("reaction tidy-up: cannot read what the store has, leaving it out") == 1


@run_by(partial(play_one, define=_define))
async def test_jobs_that_no_reaction_waits_for_are_not_read(stage: Stage, /) -> None:
    process = stage.start()
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load"))
    reads: list[str] = []
    get = process.store.get

    async def count(job_id: str) -> Any:
        reads.append(job_id)
        return await get(job_id)

    vars(process.store)["get"] = count
    await stage.submit(20, task="other")
    (awaited,) = await stage.submit(task="load")
    player = await stage.player_of_declared()
    await player.has(21)
    await player.finish()
    await stage.pass_by(3)

    assert reads == [awaited]


@run_by(partial(play_one, define=_define))
async def test_ended_runs_are_read_only_for_reactions_to_runs(stage: Stage, /) -> None:
    process = stage.start()
    await put_reaction(stage, process, "tidy-up", "tidy", _ends_of("load"))
    reads: list[int] = []
    runs = process.store.runs
    read = runs.ended_since

    async def count(since: int, **options: Any) -> Any:
        reads.append(since)
        return await read(since, **options)

    vars(runs)["ended_since"] = count
    await stage.pass_by(40)
    assert reads == []

    process.app.task(name="sweep", queue="calls")(lambda ended: None)
    await put_reaction(stage, process, "sweep-up", "sweep", {"kind": "run", "workflow": "nightly"})
    assert reads != []


@run_by(partial(play_one, define=_define))
async def test_a_reaction_that_cannot_work_is_refused_by_name(stage: Stage, /) -> None:
    process = stage.start()
    process.app.on(job("other"), name="of-code")(process.app.tasks["tidy"])
    put = reactions_of(process).put
    ends = _ends_of("load")

    for name, task, when, reason in (
        ("of-code", "tidy", ends, "reaction 'of-code' is defined in the code already"),
        ("@acme:a", "tidy", ends, "reaction '@acme:a': a name must not begin with @"),
        ("a", "none", ends, "reaction 'a': the app has no task 'none'"),
        ("a", "tidy", _ends_of("none"), "reaction 'a': the app has no task 'none'"),
        ("a", "load", ends, "reaction 'a': the task must accept a JobEnded as its only argument"),
        ("a", "tidy", _ends_of("load", states=["running"]), "a job ends as"),
        ("a", "tidy", _ends_of("tidy"), "the end of a job of tidy would start the next one forever"),
        ("a", "tidy", {"kind": "file", "pattern": "*"}, "when: give"),
        ("a", "tidy", {"kind": "job", "tasks": "load"}, "when: give"),
        ("a", "publish", {"kind": "at_least", "parts": [ends, ends]}, "when: give"),
        ("a", "publish", {"kind": "all_of", "parts": ["load"]}, "when: give"),
    ):
        with pytest.raises(InvalidOption, match=reason):
            await put(name, ReactionRule(task=task, when=when))
    with pytest.raises(InvalidOption, match="remove it there"):
        await reactions_of(process).remove("of-code")
    assert await reactions_of(process).list_all() == []
