"""Workflows from sending to their end, on `memory://`, with a worker; and failures of their gate."""

import asyncio
from typing import Any

import pytest

from taskmq import (
    FlowFailed,
    FlowNotFound,
    InvalidOption,
    JobCancelled,
    ResultTimeout,
    TaskMQ,
    UnsupportedFeature,
    chain,
    chord,
    dag,
    group,
)
from taskmq.contracts.stores.flows import NodeState
from taskmq.operations.workflows import redrive_workflow
from taskmq.workflow.parts import Workflow
from taskmq.workflow.service import Redriven
from tests.servers.waiting import until
from tests.unit.workflow.shop import ENGINES, Shop

pytestmark = pytest.mark.real_time


@pytest.fixture(params=ENGINES)
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(engine=request.param)


@pytest.mark.parametrize("content_type", ["json", "msgpack"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_chains_groups_chords_and_maps_compute_their_values(engine: str, content_type: str) -> None:
    shop = Shop(engine=engine, content_type=content_type)
    add, total, numbers = shop.add, shop.total, shop.numbers

    async with shop.open():
        assert await (await (add.s(1) | add.s(4) | add.s(other=10)).asend()).aresult(10) == 16
        assert await (await add.s(1).asend()).aresult(10) == 2
        assert await (await group(add.s(1), numbers.s(2)).asend()).aresult(10) == [2, [0, 1]]
        assert await (await chord([add.s(n) for n in range(5)], total.s()).asend()).aresult(10) == 15
        # Two consecutive groups, with a chain in one of them.
        wide = group(add.s(n) for n in range(4)) | group(total.s(), chain(total.s(), add.s(1)))
        assert await (await wide.asend()).aresult(10) == [10, 11]
        assert await (await (numbers.s(30) | add.s(100).each(limit=4) | total.s()).asend()).aresult(10) == 3435
        assert await (await (numbers.s(0) | add.s().each()).asend()).aresult(10) == []
        assert await (await add.starmap([(1, 2), (3, 4)]).asend()).aresult(10) == [3, 7]


@pytest.mark.parametrize("content_type", ["json", "msgpack"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_step_behind_an_empty_group_gets_an_empty_list(engine: str, content_type: str) -> None:
    shop = Shop(engine=engine, content_type=content_type)
    add, total = shop.add, shop.total

    async with shop.open():
        for empty in (add.map([]), add.starmap([]), add.chunks([], 5), group(), group([])):
            assert await (await (empty | total.s()).asend()).aresult(10) == 0
            assert await (await chord(empty, total.s()).asend()).aresult(10) == 0
            assert await (await chain(empty, add.s(1).each(), total.s()).asend()).aresult(10) == 0
            assert await (await (empty | empty | total.s()).asend()).aresult(10) == 0
            assert await (await group(empty, add.s(1)).asend()).aresult(10) == [[], 2]
        assert await (await chord([], total.s()).asend()).aresult(10) == 0
        # Alone it has nothing to do, and its app is known.
        assert await (await add.map([]).asend()).aresult(10) == []
        graph = dag()
        graph.add(total.s(), after=[graph.add(add.map([]), name="none")], name="sum")
        assert await (await graph.asend()).aresult(10) == {"sum": 0}


async def test_an_empty_group_waits_for_the_previous_step(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.add.map([]), shop.total.s()).asend()
        assert await flow.aresult(10) == 0
        assert shop.ran == ["a"]

        flow = await chain(shop.named.s("b"), shop.add.map([]), shop.total.s()).asend()
        with pytest.raises(FlowFailed, match="b is broken"):
            await flow.aresult(10)


def test_a_workflow_without_a_task_cannot_be_sent() -> None:
    nothing: list[Workflow[Any]] = [group(), group([]) | group(), group(group())]
    for workflow in nothing:
        with pytest.raises(
            InvalidOption, match=r"this workflow names no task, so no app can send it: give it a step"
        ):
            workflow.send()


def test_a_workflow_is_sent_and_awaited_by_synchronous_code(tmp_path: Any) -> None:
    shop = Shop(f"local://{tmp_path}/queue")
    with shop.app:
        flow = (shop.add.s(1) | shop.add.s(5)).send(keep="1h")
        assert flow.state().steps == {"add": NodeState.READY, "add-2": NodeState.WAITING}
        with pytest.raises(ResultTimeout):
            flow.result(timeout=0.01)

        async def work() -> None:
            async with shop.open():
                assert await shop.app.flow(flow.id).aresult(20) == 7

        asyncio.run(work())
        assert flow.result(timeout=10) == 7
        assert flow.state().state == "succeeded"
        assert flow.redrive() == 0
        assert flow.cancel() is False


async def test_a_task_sends_a_workflow(shop: Shop) -> None:

    async with shop.open():
        inner = await (await shop.sends.asend(1)).aresult(10)
        assert await shop.app.flow(inner).aresult(10) == 12


async def test_a_failure_fails_the_flow_and_is_reported_with_its_step(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.named.si("b"), shop.named.si("c")).asend()
        with pytest.raises(FlowFailed, match="ValueError: b is broken") as caught:
            await flow.aresult(10)
        assert caught.value.failures == {"named-2": "ValueError: b is broken"}
        state = await flow.astate()
        assert (state.state, state.count("succeeded")) == ("failed", 1)
        assert state.steps["named-3"] == NodeState.UPSTREAM_FAILED
        found = [(step.name, step.state, step.value) async for step in flow.astream()]
        assert found == [
            ("named", NodeState.SUCCEEDED, "a"),
            ("named-2", NodeState.FAILED, None),
            ("named-3", NodeState.UPSTREAM_FAILED, None),
        ]

        shop.broken.clear()
        assert await flow.aredrive() == 2
        assert await flow.aresult(10) == "c"
        assert shop.ran == ["a", "b", "b", "c"]


async def letters(shop: Shop, queue: str = "default.dlq") -> list[str | None]:
    async with shop.app.sessions.current().broker.peek(queue, limit=100) as found:
        return [each.message_id for each in found]


async def test_a_redrive_removes_only_the_dead_letters_of_rerun_steps() -> None:
    shop = Shop()
    shop.broken = {"a", "b", "c"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.named.si("b")).asend()
        other = await shop.named.s("c").asend()
        for each in (flow, other):
            with pytest.raises(FlowFailed):
                await each.aresult(10)

        shop.broken = {"b"}
        assert await redrive_workflow(shop.app, flow.id) == Redriven(2, 1)
        with pytest.raises(FlowFailed):
            await flow.aresult(10)

        async def both_exist() -> bool:
            return len(await letters(shop)) >= 2

        await until(both_exist)
        left = await letters(shop)
        theirs = [job for job in left if str(job).startswith(f"taskmq:step:{other.id}~")]
        (ours,) = [str(job) for job in left if job not in theirs]
        assert len(theirs) == 1
        assert ours.startswith(f"taskmq:step:{flow.id}~")
        assert ours.endswith("~1")

        shop.broken.clear()
        assert await flow.aredrive() == 1
        assert await flow.aresult(10) == "b"
        assert await letters(shop) == theirs
        assert await redrive_workflow(shop.app, flow.id) == Redriven(0, 0)


async def test_a_redrive_of_an_unknown_workflow_says_so() -> None:
    shop = Shop()

    async with shop.open():
        with pytest.raises(FlowNotFound):
            await redrive_workflow(shop.app, "nobody")


async def test_the_steps_of_a_workflow_are_reported_with_their_tasks_attempts_and_errors(shop: Shop) -> None:
    shop.broken = {"b"}

    async with shop.open():
        flow = await chain(shop.named.s("a"), shop.named.si("b"), shop.named.si("c")).asend()
        with pytest.raises(FlowFailed):
            await flow.aresult(10)
        steps = await flow.asteps()

    assert [(step.name, step.task, step.state, step.attempts) for step in steps] == [
        ("named", "named", NodeState.SUCCEEDED, 1),
        ("named-2", "named", NodeState.FAILED, 1),
        ("named-3", "named", NodeState.UPSTREAM_FAILED, None),
    ]
    assert "b is broken" in str(steps[1].error)
    assert not steps[0].error
    assert [step.after for step in steps] == [(), ("named",), ("named-2",)]


async def test_the_calls_of_a_mapped_step_are_reported_as_parts_of_it(shop: Shop) -> None:

    async with shop.open():
        flow = await chain(shop.numbers.s(2), shop.add.s().each()).asend()
        await flow.aresult(10)
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

        assert await sent.aresult(10) == {"fed": None}
        assert await sent.aresult_of(last) == "last"
        assert await sent.aresult_of(never) is None
        assert (await sent.astate()).steps == {
            "named": NodeState.SUCCEEDED,
            "named-2": NodeState.FAILED,
            "steps_aside": NodeState.CANCELLED,
            "any": NodeState.SUCCEEDED,
            "all": NodeState.UPSTREAM_FAILED,
            "none": NodeState.SUCCEEDED,
            "skip": NodeState.SKIPPED,
            "last": NodeState.SUCCEEDED,
            "fed": NodeState.FAILED,
        }
        strange = dag().add(shop.named.s("other"), name="strange")
        with pytest.raises(InvalidOption, match="is not of workflow"):
            await sent.aresult_of(strange)


async def test_a_map_runs_no_more_calls_at_a_time_than_its_limit(shop: Shop) -> None:

    async with shop.open():
        flow = await (shop.numbers.s(20) | shop.waits.s().each(limit=3)).asend()
        await until(lambda: shop.most >= 3)
        assert (await flow.astate()).steps["waits"] in ("ready", "running")
        shop.gate.set()
        assert await flow.aresult(10) == list(range(20))
        assert shop.most == 3


async def test_a_map_over_too_many_items_or_no_list_fails(shop: Shop) -> None:

    async with shop.open():
        wide = await (shop.numbers.s(20) | shop.add.s().each(max_width=19)).asend()
        with pytest.raises(FlowFailed, match="max_width"):
            await wide.aresult(10)
        none = await chain(shop.add.s(1), shop.add.s().each()).asend()
        with pytest.raises(FlowFailed, match=r"Expected `array`|not a list"):
            await none.aresult(10)
        assert not [line for line in shop.ran if line != "add 1 1"]


async def test_a_step_has_its_own_attempts(shop: Shop) -> None:

    async with shop.open():
        flow = dag()
        flow.add(shop.tries.s("own").options(max_attempts=2))
        flow.add(shop.tries.s("usual"))
        sent = await flow.asend()
        with pytest.raises(FlowFailed, match="and 1 more"):
            await sent.aresult(10)

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
        assert set(state.steps.values()) == {NodeState.CANCELLED}
        assert shop.running == 0

        shop.gate.set()
        assert await flow.aredrive() >= 4
        assert await flow.aresult(20) == 3


async def test_the_same_id_is_one_flow_however_often_it_is_sent(shop: Shop) -> None:

    async with shop.open():
        flows = [await shop.named.s("once").asend(flow_id="nightly-7") for _ in range(3)]
        assert {await flow.aresult(10) for flow in flows} == {"once"}
        await shop.named.s("once").asend(flow_id="nightly-7")
    assert shop.ran == ["once"]


async def test_an_unknown_flow_is_reported_and_its_messages_are_dead() -> None:
    shop = Shop()

    async with shop.app:
        with pytest.raises(FlowNotFound, match="never sent to this state"):
            await shop.app.flow("none").aresult(1)
        with pytest.raises(InvalidOption, match="flow_id"):
            await shop.named.s("a").asend(flow_id="a/b")
        with pytest.raises(InvalidOption, match="names no task"):
            await dag().asend()
        flow = await shop.named.s("lost").asend()
        shop.app.sessions.current().state.flows._table.clear()  # type: ignore[union-attr]
        async with shop.open():

            async def is_dead() -> bool:
                return bool((await shop.app.sessions.current().broker.stats(["default.dlq"]))[0].ready)

            await until(is_dead)
        assert not shop.ran
        assert flow.id


async def test_workflows_without_a_state_are_refused_by_name() -> None:
    app = TaskMQ("amqp://nobody@nowhere:1/")

    @app.task(name="alone")
    async def alone() -> None: ...

    with pytest.raises(UnsupportedFeature, match="workflows need a state"):
        await alone.s().asend()
    await app.aclose()


async def test_a_step_answered_by_its_idempotency_key_ends_in_its_flow(shop: Shop) -> None:

    @shop.app.task(name="paid", idempotency_key="order", retry=None)
    async def paid(order: str) -> str:
        shop.ran.append(order)
        return f"receipt {order}"

    async with shop.open():
        assert await (await paid.asend("a")).aresult(10) == "receipt a"
        flow = await (shop.named.s("a") | paid.s() | shop.named.s()).asend()
        assert await flow.aresult(10) == "receipt a"
    assert shop.ran == ["a", "a", "receipt a"]
