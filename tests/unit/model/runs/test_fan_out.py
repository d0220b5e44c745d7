from typing import Any

import msgspec
import pytest

from taskmq.model.runs.records import StepKey
from tests.unit.model.runs.run_kit import MemoryRun, graph_of


def test_each_runs_a_job_for_each_item_and_returns_the_list_of_their_values() -> None:
    run = _run(
        {"a": {"task": "t"}, "b": {"task": "u", "each": "${steps.a.result}"}, "c": {"task": "v", "needs": ["b"]}}
    )
    run.end("a", value=["x", {"y": 1}])

    assert (run.args("b", 0), run.args("b", 1)) == (["x"], [{"y": 1}])
    run.end("b", value=2, index=1)
    run.end("b", value=1, index=0)

    assert run.states() == {"a": "succeeded", "b": "succeeded", "c": "running"}


def test_the_list_of_values_is_complete_in_the_transaction_of_the_last_child() -> None:
    run = _run({"b": {"task": "u", "each": [1, 2]}, "c": {"task": "v", "args": ["${steps.b.result}"]}})
    run.end("b", value="y", index=1)

    run.end("b", value="x", index=0)

    assert run.args("c") == [["x", "y"]]


def test_an_erased_value_of_a_child_is_an_erased_list() -> None:
    run = _run({"b": {"task": "u", "each": [1, 2]}, "c": {"task": "v", "args": ["${steps.b.result}"]}})
    run.end("b", value="y", index=1)
    run.erased.add(StepKey("b", 1))

    run.end("b", value="x", index=0)

    assert run.state("c") == "upstream_failed"


@pytest.mark.parametrize(
    ("fields", "args", "kwargs"),
    [
        ({}, [{"n": 7}], {}),
        ({"args": [1]}, [{"n": 7}, 1], {}),
        ({"args": [1, "${item.n}"]}, [1, 7], {}),
        ({"with": {"x": "${item}", "p": "${params.p}"}}, [], {"x": {"n": 7}, "p": 3}),
    ],
)
def test_the_item_is_the_first_argument_unless_the_step_refers_to_it(
    fields: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    run = _run({"b": {"task": "u", "each": [{"n": 7}], **fields}}, p=3)

    assert (run.args("b", 0), run.kwargs("b", 0)) == (args, kwargs)


def test_spread_items_are_lists_of_arguments() -> None:
    run = _run({"b": {"task": "u", "each": [[1, 2], 3], "spread": True}})

    assert run.args("b", 0) == [1, 2]
    assert run.state("b", 1) == "failed"
    assert run.step("b", 1).error == "spread: the item is not a list of arguments"


def test_an_empty_list_succeeds_at_once() -> None:
    run = _run({"b": {"task": "u", "each": []}})

    assert run.value == {"b": []}


@pytest.mark.parametrize(
    ("each", "error"),
    [
        ("${params.p}", "each: the value is not a list"),
        ("${item}", "item: there is no item"),
        ([1, 2, 3], "each: the list has 3 items, and max_width is 2"),
        ("${params.p.x}", "params.p.x leads to nothing: 'x' does not exist"),
    ],
)
def test_a_value_that_is_no_short_list_fails_the_step(each: Any, error: str) -> None:
    run = _run({"b": {"task": "u", "each": each, "max_width": 2}}, p={"no": "list"})

    assert (run.state("b"), run.step("b").error) == ("failed", error)


def test_children_that_cannot_start_fail_alone() -> None:
    run = _run({"b": {"task": "u", "each": [{"x": 1}, {}], "args": ["${item.x}"]}})
    assert run.children("b") == {0: "running", 1: "failed"}

    run.end("b", index=0)

    assert (run.state("b"), run.step("b").error) == ("failed", "1 of 2 jobs have not succeeded")


def test_a_step_whose_children_cannot_start_at_all_fails() -> None:
    run = _run({"b": {"task": "u", "each": [{}, {}], "args": ["${item.x}"]}})

    assert run.run.state == "failed"


def test_at_most_limit_children_run_at_a_time() -> None:
    run = _run({"b": {"task": "u", "each": [*range(5)], "limit": 2}})
    assert run.children("b") == {0: "running", 1: "running"}

    run.end("b", index=1)
    assert run.children("b") == {0: "running", 1: "succeeded", 2: "running"}

    run.end("b", "failed", index=2)
    assert run.children("b") == {0: "running", 1: "succeeded", 2: "failed", 3: "running"}


def test_children_are_started_in_portions() -> None:
    run = MemoryRun(graph_of({"b": {"task": "u", "each": [*range(1_200)]}}))

    run.settle()

    assert len(run.jobs) == 1_200
    assert run.transactions >= 5


def test_a_batch_runs_what_is_added_until_it_is_closed() -> None:
    run = _run({"b": {"batch": True, "limit": 2}})

    assert _add(run, 1, 2, 3) == "added"
    assert run.children("b") == {0: "running", 1: "running", 2: "waiting"}
    assert (run.job("b", 0).task, run.args("b", 0), run.job("b", 0).options) == ("t", [1], {"queue": "q"})
    for index in range(3):
        run.end("b", index=index, value=index)
    assert run.state("b") == "running"
    assert run.send("close", step="b") == "closed"
    assert run.value == {"b": [0, 1, 2]}


def test_a_closed_batch_takes_nothing_more() -> None:
    run = _run({"b": {"batch": True}})
    _add(run, 1)

    run.send("close", step="b")

    assert _add(run, 2) == "closed"
    assert run.send("close", step="b") == "closed"
    assert run.state("b") == "running"
    run.end("b", index=0, value=5)
    assert run.value == {"b": [5]}


def test_an_empty_batch_succeeds_when_it_is_closed() -> None:
    run = _run({"b": {"batch": True}})

    run.send("close", step="b")

    assert run.value == {"b": []}


def test_a_cancelled_batch_takes_nothing_more() -> None:
    run = _run({"b": {"batch": True}})
    _add(run, 1)

    run.send("cancel", error="stop")

    assert _add(run, 2) == "closed"
    assert run.cancelled == [run.step("b", 0).job]
    run.end("b", "cancelled", index=0)
    assert run.state("b") == "cancelled"


def test_children_that_ended_are_not_cancelled() -> None:
    run = _run({"b": {"task": "t", "each": [1, 2]}})
    run.end("b", index=0)

    run.send("cancel", error="stop")

    assert run.cancelled == [run.step("b", 1).job]
    run.end("b", index=1, value=1)
    assert run.state("b") == "succeeded"


def _add(run: MemoryRun, *args: int) -> str:
    calls = [{"task": "t", "args": [value], "options": {"queue": "q"}} for value in args]
    return run.send("add", step="b", calls=tuple(msgspec.Raw(msgspec.json.encode(call)) for call in calls))


def _run(steps: dict[str, Any], **params: Any) -> MemoryRun:
    run = MemoryRun(graph_of(steps, params={name: {} for name in params}), params)
    run.settle()
    return run
