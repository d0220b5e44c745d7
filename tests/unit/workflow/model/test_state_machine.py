"""The state machine against a model without shared code, and its corner cases.

$TASKMQ_TEST_GRAPHS   random graphs of 10 to 200 nodes (default 60; campaign 1000)
"""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores.flows import FINISH, FlowNode, NodeState, Rule
from taskmq.testing import FakeClock
from taskmq.testing.state_suite.models.flows import drive, expected_states, random_graph
from taskmq.workflow.model.flow_view import NodeClaim
from taskmq.workflow.model.rules import ParentCounts, decide
from taskmq.workflow.model.state_machine import advance, end_node, expand
from taskmq.workflow.model.transitions import open_flow, renew_run, start_run, take_some
from taskmq_local import open_memory_state
from taskmq_local.memory.flows import MemoryFlow

GRAPHS = int(os.environ.get("TASKMQ_TEST_GRAPHS", "60"))
_ENDS = (NodeState.SUCCEEDED,) * 10 + (NodeState.FAILED, NodeState.CANCELLED)
_RULES: tuple[Rule, ...] = ("all", "any", "none_failed", "always")


@pytest.mark.real_time
@pytest.mark.timeout(60 + GRAPHS)
async def test_random_graphs_of_all_sizes_end_as_the_model_predicts() -> None:
    chance = random.Random(11)
    clock = FakeClock()
    for number in range(GRAPHS):
        flows = open_memory_state(f"memory://graphs-{number % 3}", BrokerOptions(name="x", clock=clock)).flows
        nodes = random_graph(chance, chance.randint(10, 200))
        ends = {node.key: chance.choice(_ENDS) for node in nodes}
        flow_id = f"flow-{number}"
        await flows.create(flow_id, b"", nodes, ttl=60)
        clock.advance(1)

        runs = await drive(flows, flow_id, ends, chance)

        assert await flows.states(flow_id) == expected_states(nodes, ends)
        assert set(runs.values()) <= {1}
        assert len(await flows.ended_keys(flow_id, offset=0, limit=1000)) == len(nodes)


_kinds = st.sampled_from([NodeState.SUCCEEDED, NodeState.FAILED, NodeState.UPSTREAM_FAILED, NodeState.SKIPPED])


@given(st.sampled_from(_RULES), st.lists(_kinds, max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_rule_decides_when_a_node_starts_and_when_it_never_will(rule: Rule, before: list[NodeState]) -> None:
    good = before.count(NodeState.SUCCEEDED)
    bad = before.count(NodeState.FAILED) + before.count(NodeState.UPSTREAM_FAILED)
    parents = ParentCounts(good, bad, len(before) - good - bad)

    found = decide(rule, parents, is_complete=True)

    starts = {"all": good == len(before), "any": good > 0, "none_failed": not bad, "always": True}[rule]
    assert found is (NodeState.READY if starts else NodeState.UPSTREAM_FAILED if bad else NodeState.SKIPPED)
    early = decide(rule, parents, is_complete=False)
    assert early is (NodeState.READY if rule == "any" and good else NodeState.WAITING)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_order_in_which_nodes_end_changes_nothing(data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 10_000)))
    nodes = random_graph(chance, data.draw(st.integers(1, 12)))
    ends = {node.key: data.draw(st.sampled_from(_ENDS)) for node in nodes}
    view = MemoryFlow(b"", nodes, ttl=1)
    open_flow(view, nodes)
    ready: list[str] = []
    while True:
        taken = take_some(view, taker="a", until=10, now=0)
        ready += [node.key for node in taken.nodes if node.key != FINISH]
        if not ready:
            break
        key = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        end_node(view, view.nodes[key], ends[key])
        # Reported again, and checked in steps of one.
        view.put(replace(view.nodes[key], visit=0))
        while advance(view, 1):
            pass

    assert {node.key: node.state for node in view.nodes.values()} == expected_states(nodes, ends)


def _map(children: int = 0) -> MemoryFlow:
    nodes = [FlowNode(key="m", kind="map"), FlowNode(key="last", after=("m",))]
    view = MemoryFlow(b"", nodes, ttl=1)
    open_flow(view, nodes)
    if children:
        expand(view, view.nodes["m"], [b"x"] * children, first=0, total=children)
    return view


def test_a_node_that_is_no_longer_ready_is_not_returned() -> None:
    view = _map()
    view.put(replace(view.nodes["m"], state=NodeState.CANCELLED))

    assert take_some(view, taker="a", until=10, now=0).nodes == ()
    assert view.lease("b", until=30, now=20, limit=10, again=False) == []


def test_an_expanded_map_is_not_expanded_again() -> None:
    view = _map(2)

    expand(view, view.nodes["m"], [b"y"] * 3, first=0, total=3)

    assert view.nodes["m"].total == 2
    assert view.find("m.2") is None


def test_a_child_of_a_map_that_ends_twice_arrives_once() -> None:
    view = _map(1)
    for _ in range(2):
        end_node(view, view.nodes["m.0"], NodeState.SUCCEEDED)
        advance(view, 10)

    assert view.nodes["m"].state is NodeState.SUCCEEDED


def test_a_map_started_by_any_rule_ends_with_its_children() -> None:
    nodes = [
        FlowNode(key="fast"),
        FlowNode(key="slow"),
        FlowNode(key="m", kind="map", rule="any", after=("fast", "slow")),
    ]
    view = MemoryFlow(b"", nodes, ttl=1)
    open_flow(view, nodes)
    end_node(view, view.nodes["fast"], NodeState.SUCCEEDED)
    advance(view, 10)
    expand(view, view.nodes["m"], [b"x"], first=0, total=1)

    end_node(view, view.nodes["m.0"], NodeState.SUCCEEDED)
    advance(view, 10)

    assert view.nodes["m"].state is NodeState.SUCCEEDED
    end_node(view, view.nodes["slow"], NodeState.FAILED)
    advance(view, 10)
    assert view.nodes["m"].state is NodeState.SUCCEEDED


def test_a_run_is_renewed_only_by_its_token_and_until_it_has_ended() -> None:
    view = _map(1)
    begun = start_run(view, "m.0", owner="a", until=10, takes_over=False, now=0)
    assert begun is not None
    assert view.nodes["m.0"].claim == NodeClaim(1, "a", 10)

    assert renew_run(view, "m.0", token=1, until=20)
    assert not renew_run(view, "m.0", token=2, until=30)
    end_node(view, view.nodes["m.0"], NodeState.FAILED)
    assert not renew_run(view, "m.0", token=1, until=30)
