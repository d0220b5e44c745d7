"""The order of the nodes of a workflow."""

from typing import Any

from taskmq import TaskMQ, chain, chord, dag, group
from taskmq.model.envelope import JSON
from taskmq.workflow.model.calls import Graph, decode_call, nodes_before
from taskmq.workflow.parts import Workflow
from tests.unit.app_kit import new_url

app = TaskMQ(new_url())


@app.task(name="one")
def one(number: int) -> int:
    return number


@app.task(name="many")
def many(numbers: list[int]) -> list[int]:
    return numbers


def _before(workflow: Workflow[Any]) -> dict[str, list[str]]:
    graph: Graph = workflow.compile(JSON)
    names = graph.head.names
    found = nodes_before({node.key: decode_call(node.call) for node in graph.nodes}, names)
    return {names[key]: [names[each] for each in before] for key, before in found.items()}


def test_a_step_without_a_parent_value_still_follows_the_previous_one() -> None:
    assert _before(chain(one.s(1), one.si(2), one.s())) == {"one": [], "one-2": ["one"], "one-3": ["one-2"]}


def test_a_node_behind_a_wait_node_depends_on_the_nodes_it_waits_for() -> None:
    workflow = chord([one.s(1), chain(one.s(2), one.s())], chain(many.s(), many.s().each()))

    assert _before(workflow) == {
        "one": [],
        "one-2": [],
        "one-3": ["one-2"],
        "many": ["one", "one-3"],
        "many-2": ["many"],
    }


def test_a_wait_node_behind_another_is_resolved_through_it() -> None:
    inner = group(one.s(1), one.s(2))

    assert _before(chord([inner, inner], many.si([0])))["many"] == ["one", "one-2", "one-3", "one-4"]


def test_steps_of_a_graph_follow_the_steps_they_name() -> None:
    graph = dag()
    first = graph.add(one.s(1), name="first")
    second = graph.add(one.s(2), name="second")
    graph.add(one.s(), after=[first], name="fed")
    graph.add(one.si(3), after=[first, second], name="last")

    assert _before(graph) == {"first": [], "second": [], "fed": ["first"], "last": ["first", "second"]}
