"""Schedules that start workflows and steps, by replicas of beat."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from taskmq import InvalidOption, TaskMQ, chain, dag, group
from taskmq.beat.emitter import Emission, Emitter
from taskmq.contracts.stores.flows import NodeState
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.keys import scheduled_job_id
from taskmq.operations.workflows import flow_of
from taskmq.run.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.record import OccurrenceClaim
from taskmq.schedules.triggers import every
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.beat.stage import START, Stage, play
from tests.unit.worker.staged import settle_loop


def _define(app: TaskMQ) -> None:
    @app.task(name="load", queue="work", retry=None)
    async def load(name: str) -> str:
        return name

    @app.task(name="shout", queue="work", retry=None)
    async def shout(text: str) -> str:
        return text.upper()


def _play(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    play(test, _define)


def _steps(app: TaskMQ) -> tuple[Any, Any]:
    return cast("Any", app.tasks["load"]), cast("Any", app.tasks["shout"])


async def _sent_envelopes(stage: Stage) -> list[Envelope]:
    return [decode_envelope(each.body, each.content_type) for each in await stage.app.messages("work")]


@run_by(_play)
async def test_three_replicas_start_one_workflow_for_each_occurrence(stage: Stage, /) -> None:
    for _ in range(3):
        await stage.start()
    load, shout = _steps(stage.apps[0])
    await stage.apps[0].schedules.aadd("nightly", chain(load.s("a"), shout.s()), every("10s"))
    await stage.advance(1)

    for _ in range(5):
        await stage.advance(10)

    sent = await _sent_envelopes(stage)
    instants = [START + 10_000 * number for number in range(1, 6)]
    assert [each.root for each in sent] == [scheduled_job_id(stage.app.name, "nightly", at) for at in instants]
    assert [each.task for each in sent] == ["load"] * 5
    metas = [each.meta or {} for each in sent]
    assert [int(meta[SCHEDULED_FOR]) for meta in metas] == instants
    assert {meta[SCHEDULE_NAME] for meta in metas} == {"nightly"}
    status = await stage.apps[1].schedules.astatus("nightly")
    assert status.fired == 5


@run_by(_play)
async def test_an_occurrence_started_again_by_another_replica_is_the_same_workflow(stage: Stage, /) -> None:
    # The first replica started the workflow and could not report it: the second takes over the claim.
    first, second = stage.twin(), stage.twin()
    load, shout = _steps(first)
    await first.schedules.aadd("nightly", load.s("a") | shout.s(), every("10s"))
    claim = OccurrenceClaim(START + 10_000, "", "somebody", START + 20_000, "due")

    for app in (first, second, first):
        emission = Emission((await app.schedules.aall())["nightly"], claim)
        assert await Emitter(app).publish([emission], now=START + 10_000) == {}

    assert [each.root for each in await _sent_envelopes(stage)] == [
        scheduled_job_id(first.name, "nightly", START + 10_000)
    ]


@run_by(_play)
async def test_a_scheduled_workflow_runs_to_its_end_and_its_steps_know_the_occurrence(stage: Stage, /) -> None:
    await stage.start()
    app = stage.apps[0]
    load, shout = _steps(app)
    graph = dag()
    graph.add(shout.s(), after=[graph.add(load.s("a"))])
    await app.schedules.aadd("graph", graph, every("10s"))
    await app.schedules.aadd("group", group(load.s("b"), load.s("c")), every("20s"))
    await stage.advance(1)
    await stage.advance(19)
    worker = Worker(stage.twin(), WorkerConfig(name="w"))
    running = asyncio.create_task(worker.run())
    await settle_loop()
    await settle_loop()

    for name, at, value in (("graph", 20_000, {"shout": "A"}), ("group", 20_000, ["b", "c"])):
        flow = flow_of(app, scheduled_job_id(app.name, name, START + at))
        assert (await flow.astate()).state == "succeeded"
        assert await flow.aresult(1) == value
        assert set((await flow.astate()).steps.values()) == {NodeState.SUCCEEDED}
    worker.requeue_now()
    await asyncio.wait((running,))


@run_by(_play)
async def test_a_step_with_options_keeps_them_and_one_without_is_the_task(stage: Stage, /) -> None:
    await stage.start()
    app = stage.apps[0]
    load, _ = _steps(app)
    await app.schedules.aadd("plain", load.s("a"), every("10s"))
    await app.schedules.aadd("urgent", load.s("b").options(priority=9), every("10s"))
    await stage.advance(1)
    await stage.advance(10)

    (plain,) = await _sent_envelopes(stage)
    (urgent,) = [decode_envelope(each.body) for each in await stage.app.messages("work.p.high")]

    assert (plain.id, plain.flow) == (scheduled_job_id(app.name, "plain", START + 10_000), None)
    assert (urgent.root, urgent.priority) == (scheduled_job_id(app.name, "urgent", START + 10_000), 9)
    entries = await app.schedules.aall()
    assert (entries["plain"].starts, entries["urgent"].starts) == ("load", "workflow of load")


@run_by(_play)
async def test_run_starts_a_workflow_at_once(stage: Stage, /) -> None:
    app = stage.twin()
    load, shout = _steps(app)
    await app.schedules.aadd("nightly", load.s("a") | shout.s(), every("1h"))

    flow_id = await app.schedules.arun("nightly")

    assert [each.root for each in await _sent_envelopes(stage)] == [flow_id]
    assert (await flow_of(app, flow_id).astate()).state == "running"


@run_by(_play)
async def test_a_workflow_that_cannot_be_started_is_refused(stage: Stage, /) -> None:
    app = stage.twin()
    load, shout = _steps(app)
    other = TaskMQ("memory://other")

    @other.task(name="load")
    async def foreign(name: str) -> str:
        return name

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (shout.s(), {}, r"shout.s\(...\) lacks arguments"),
        (lambda: None, {}, "pass a task"),
        ("load", {}, "a task's name needs a job store; pass a task"),
        (load.s("a"), {"args": ("b",)}, r"args= and kwargs= need a task"),
        (group(), {}, "the workflow has no task"),
        (chain(load.s("a"), shout.s()), {"overlap": "skip"}, "overlap='skip' is for tasks"),
        (chain(foreign.s("a"), foreign.s()), {}, "task load is not defined in this app"),
    ]
    for target, options, words in cases:
        with pytest.raises(InvalidOption, match=words):
            await app.schedules.aadd("x", target, every("1h"), **options)


@run_by(_play)
async def test_a_beat_without_the_tasks_of_a_workflow_leaves_it_to_other_beats(stage: Stage, /) -> None:
    app = stage.twin()
    load, shout = _steps(app)
    await app.schedules.aadd("nightly", load.s("a") | shout.s(), every("10s"))

    await stage.start(define=lambda _: None)
    await stage.advance(10)
    assert await _sent_envelopes(stage) == []

    await stage.start()
    await stage.advance(10)
    assert len(await _sent_envelopes(stage)) >= 1
