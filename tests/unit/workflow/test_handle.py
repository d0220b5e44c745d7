"""Workflows from sending to their end, on `memory://`, with a worker and a scheduler."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taskmq import (
    InvalidOption,
    JobCancelled,
    ResultTimeout,
    RunFailed,
    RunNotFound,
    TaskMQ,
    UnsupportedFeature,
    chain,
    chord,
    dag,
    group,
)
from taskmq.model.runs.rules import StepState
from taskmq.workflow.parts import Workflow
from tests.servers.waiting import until
from tests.unit.workflow.shop import Shop

pytestmark = pytest.mark.real_time


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("content_type", ["json", pytest.param("msgpack", marks=pytest.mark.matrix)])
async def test_chains_groups_chords_and_maps_compute_their_values(content_type: str) -> None:
    shop = Shop(content_type=content_type)
    add, total, numbers = shop.add, shop.total, shop.numbers

    async with shop.open():
        assert await (await (add.s(1) | add.s(4) | add.s(other=10)).asend()).aresult(60) == 16
        assert await (await add.s(1).asend()).aresult(60) == 2
        assert await (await group(add.s(1), numbers.s(2)).asend()).aresult(60) == [2, [0, 1]]
        assert await (await chord([add.s(n) for n in range(5)], total.s()).asend()).aresult(60) == 15
        # Two consecutive groups, with a chain in one of them.
        wide = group(add.s(n) for n in range(4)) | group(total.s(), chain(total.s(), add.s(1)))
        assert await (await wide.asend()).aresult(60) == [10, 11]
        assert await (await (numbers.s(30) | add.s(100).each(limit=4) | total.s()).asend()).aresult(60) == 3435
        assert await (await (numbers.s(0) | add.s().each()).asend()).aresult(60) == []
        assert await (await add.starmap([(1, 2), (3, 4)]).asend()).aresult(60) == [3, 7]


@pytest.mark.parametrize("content_type", ["json", pytest.param("msgpack", marks=pytest.mark.matrix)])
async def test_a_step_behind_an_empty_group_gets_an_empty_list(content_type: str) -> None:
    shop = Shop(content_type=content_type)
    add, total = shop.add, shop.total

    async with shop.open():
        for empty in (add.map([]), add.starmap([]), add.chunks([], 5), group(), group([])):
            assert await (await (empty | total.s()).asend()).aresult(60) == 0
            assert await (await chord(empty, total.s()).asend()).aresult(60) == 0
            assert await (await chain(empty, add.s(1).each(), total.s()).asend()).aresult(60) == 0
            assert await (await (empty | empty | total.s()).asend()).aresult(60) == 0
            assert await (await group(empty, add.s(1)).asend()).aresult(60) == [[], 2]
        assert await (await chord([], total.s()).asend()).aresult(60) == 0
        # Alone it has nothing to do, and its app is known.
        assert await (await add.map([]).asend()).aresult(60) == []
        graph = dag()
        graph.add(total.s(), after=[graph.add(add.map([]), name="none")], name="sum")
        assert await (await graph.asend()).aresult(60) == {"sum": 0}


async def test_an_empty_group_waits_for_the_previous_step(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.add.map([]), shop.total.s()).asend()
        assert await flow.aresult(60) == 0
        assert shop.ran == ["a"]

        flow = await chain(shop.named.s("b"), shop.add.map([]), shop.total.s()).asend()
        with pytest.raises(RunFailed, match="b is broken"):
            await flow.aresult(60)


def test_a_workflow_without_a_task_cannot_be_sent() -> None:
    nothing: list[Workflow[Any]] = [group(), group([]) | group(), group(group())]
    for workflow in nothing:
        with pytest.raises(
            InvalidOption, match=r"this workflow names no task, so no app can send it: give it a step"
        ):
            workflow.send()


def test_a_workflow_is_sent_and_awaited_by_synchronous_code(tmp_path: Path) -> None:
    shop = Shop(f"local://{tmp_path}/queue", store=f"sqlite:///{tmp_path}/jobs.db")
    with shop.app:
        flow = (shop.add.s(1) | shop.add.s(5)).send()
        assert flow.state().steps == {"add": StepState.WAITING, "add-2": StepState.WAITING}
        with pytest.raises(ResultTimeout):
            flow.result(timeout=0.01)

        async def work() -> None:
            async with shop.open():
                assert await shop.app.runs.get(flow.id).aresult(20) == 7

        asyncio.run(work())
        assert flow.result(timeout=10) == 7
        assert flow.state().state == "succeeded"
        assert flow.redrive() == 0
        assert flow.cancel() is False


async def test_a_task_sends_a_workflow(shop: Shop) -> None:

    async with shop.open():
        inner = await (await shop.sends.asend(1)).aresult(60)
        assert await shop.app.runs.get(inner).aresult(60) == 12


async def test_a_failure_fails_the_flow_and_is_reported_with_its_step(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.named.si("b"), shop.named.si("c")).asend()
        with pytest.raises(RunFailed, match="ValueError: b is broken") as caught:
            await flow.aresult(60)
        assert caught.value.failures == {"named-2": "ValueError: b is broken"}
        state = await flow.astate()
        assert (state.state, state.count("succeeded")) == ("failed", 1)
        assert state.steps["named-3"] == StepState.UPSTREAM_FAILED
        found = [(step.name, step.state, step.value) async for step in flow.astream()]
        assert found == [
            ("named", StepState.SUCCEEDED, "a"),
            ("named-2", StepState.FAILED, None),
            ("named-3", StepState.UPSTREAM_FAILED, None),
        ]

        shop.broken.clear()
        assert await flow.aredrive() == 2
        assert await flow.aresult(60) == "c"
        assert shop.ran == ["a", "b", "b", "c"]


async def test_the_steps_of_a_workflow_are_reported_with_their_tasks_attempts_and_errors(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.named.si("b"), shop.named.si("c")).asend()
        with pytest.raises(RunFailed):
            await flow.aresult(60)
        steps = await flow.asteps()

    assert [(step.name, step.task, step.state, step.attempts) for step in steps] == [
        ("named", "named", StepState.SUCCEEDED, 1),
        ("named-2", "named", StepState.FAILED, 1),
        ("named-3", "named", StepState.UPSTREAM_FAILED, None),
    ]
    assert "b is broken" in str(steps[1].error)
    assert not steps[0].error
    assert [step.after for step in steps] == [(), ("named",), ("named-2",)]


async def test_the_calls_of_a_mapped_step_are_reported_as_parts_of_it(shop: Shop) -> None:

    async with shop.open():
        flow = await chain(shop.numbers.s(2), shop.add.s().each()).asend()
        await flow.aresult(60)
        steps = await flow.asteps()

    assert [(step.name, step.after, step.part_of) for step in steps] == [
        ("numbers", (), None),
        ("add", ("numbers",), None),
        ("add[0]", (), "add"),
        ("add[1]", (), "add"),
    ]


async def test_rules_let_a_graph_continue_after_failures(shop: Shop) -> None:
    shop.broken = {"bad"}

    async with shop.open():
        flow = dag()
        good = flow.add(shop.named.s("good"))
        bad = flow.add(shop.named.s("bad"), may_fail=True)
        aside = flow.add(shop.steps_aside.s())
        one = flow.add(shop.named.si("any"), after=[good, bad], rule="any", name="any")
        never = flow.add(shop.named.si("all"), after=[good, bad], name="all")
        quiet = flow.add(shop.named.si("none"), after=[good, aside], rule="none_failed", name="none")
        skipped = flow.add(shop.named.si("skip"), after=[aside], name="skip")
        last = flow.add(shop.named.si("last"), after=[one, never, quiet, skipped], rule="always", name="last")
        flow.add(shop.total.s(), into={"numbers": last}, rule="always", name="fed", may_fail=True)
        sent = await flow.asend()

        assert await sent.aresult(60) == {"fed": None}
        assert await sent.aresult_of(last) == "last"
        assert await sent.aresult_of(never) is None
        assert (await sent.astate()).steps == {
            "named": StepState.SUCCEEDED,
            "named-2": StepState.FAILED,
            "steps_aside": StepState.CANCELLED,
            "any": StepState.SUCCEEDED,
            "all": StepState.UPSTREAM_FAILED,
            "none": StepState.SUCCEEDED,
            "skip": StepState.SKIPPED,
            "last": StepState.SUCCEEDED,
            "fed": StepState.FAILED,
        }
        strange = dag().add(shop.named.s("other"), name="strange")
        with pytest.raises(InvalidOption, match="is not of workflow"):
            await sent.aresult_of(strange)


async def test_a_map_runs_no_more_calls_at_a_time_than_its_limit(shop: Shop) -> None:

    async with shop.open():
        flow = await (shop.numbers.s(20) | shop.waits.s().each(limit=3)).asend()
        await until(lambda: shop.most >= 3)
        assert (await flow.astate()).steps["waits"] == "running"
        shop.gate.set()
        assert await flow.aresult(60) == list(range(20))
        assert shop.most == 3


async def test_a_map_over_too_many_items_or_no_list_fails(shop: Shop) -> None:

    async with shop.open():
        wide = await (shop.numbers.s(20) | shop.add.s().each(max_width=19)).asend()
        with pytest.raises(RunFailed, match="max_width"):
            await wide.aresult(60)
        none = await chain(shop.add.s(1), shop.add.s().each()).asend()
        with pytest.raises(RunFailed, match="not a list"):
            await none.aresult(60)
        assert not [line for line in shop.ran if line != "add 1 1"]


async def test_a_step_has_its_own_attempts(shop: Shop) -> None:

    async with shop.open():
        flow = dag()
        flow.add(shop.tries.s("own").options(max_attempts=2))
        flow.add(shop.tries.s("usual"))
        sent = await flow.asend()
        with pytest.raises(RunFailed, match="and 1 more"):
            await sent.aresult(60)

    assert sorted(shop.ran) == [
        "own 1 of 2",
        "own 2 of 2",
        "usual 1 of 3",
        "usual 2 of 3",
        "usual 3 of 3",
    ]


async def test_a_cancelled_flow_stops_running_steps_and_starts_no_more(shop: Shop) -> None:

    async with shop.open():
        flow = await (group(shop.waits.s(n) for n in range(3)) | shop.total.s()).asend()
        await until(lambda: shop.running >= 3)
        assert await flow.acancel("enough")
        with pytest.raises(JobCancelled, match="enough"):
            await flow.aresult(20)
        state = await flow.astate()
        assert (state.state, state.cancelled) == ("cancelled", "enough")
        assert set(state.steps.values()) == {StepState.CANCELLED}
        assert shop.running == 0

        shop.gate.set()
        assert await flow.aredrive() >= 4
        assert await flow.aresult(20) == 3


async def test_the_same_id_is_one_flow_however_often_it_is_sent(shop: Shop) -> None:

    async with shop.open():
        flows = [await shop.named.s("once").asend(run_id="nightly-7") for _ in range(3)]
        assert {await flow.aresult(60) for flow in flows} == {"once"}
        await shop.named.s("once").asend(run_id="nightly-7")
    assert shop.ran == ["once"]


async def test_unknown_and_malformed_workflows_are_refused_by_name(shop: Shop) -> None:
    async with shop.app:
        with pytest.raises(RunNotFound, match="never sent to this store"):
            await shop.app.runs.get("none").aresult(1)
        with pytest.raises(RunNotFound):
            await shop.app.runs.get("none").aredrive()
        with pytest.raises(InvalidOption, match="run_id"):
            await shop.named.s("a").asend(run_id="a/b")
        with pytest.raises(InvalidOption, match="names no task"):
            await dag().asend()


@pytest.mark.parametrize("url", ["amqp://nobody@nowhere:1/", "memory://"])
async def test_workflows_without_a_store_are_refused_with_the_remedy(url: str) -> None:
    app = TaskMQ(url)

    @app.task(name="alone")
    async def alone() -> None: ...

    remedy = r"workflows need a store: .*store='sqlite:///jobs.db'.*`taskmq scheduler`"
    with pytest.raises(UnsupportedFeature, match=remedy):
        await alone.s().asend()
    with pytest.raises(UnsupportedFeature, match=remedy):
        await app.runs.get("it").astate()
    await app.aclose()


async def test_a_step_answered_by_its_idempotency_key_ends_in_its_flow(shop: Shop) -> None:

    @shop.app.task(name="paid", idempotency_key="order", retry=None)
    async def paid(order: str) -> str:
        shop.ran.append(order)
        return f"receipt {order}"

    async with shop.open():
        assert await (await paid.s("a").asend()).aresult(60) == "receipt a"
        flow = await (shop.named.s("a") | paid.s() | shop.named.s()).asend()
        assert await flow.aresult(60) == "receipt a"
    assert shop.ran == ["a", "a", "receipt a"]
