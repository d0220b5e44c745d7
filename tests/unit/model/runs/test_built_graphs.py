"""Graphs that the first step of a run builds."""

from typing import Any

import pytest
from msgspec.structs import replace

from taskmq.model.runs.built_graphs import begun_content
from taskmq.model.runs.graphs import RunGraph, StepContent, WorkflowContent, encode_workflow, load_graph
from tests.unit.model.runs.run_kit import MemoryRun


def begin(**fields: Any) -> MemoryRun:
    """Start a run whose graph the step `build` builds."""
    run = MemoryRun(_graph(**fields), {"n": 3})
    run.settle()
    return run


def _graph(**steps: StepContent) -> RunGraph:
    build = StepContent(task="t.build", arguments={"n": "${params.n}"}, builds=True)
    content = WorkflowContent(workflow="w", params={"n": {"type": "integer"}}, steps={"build": build, **steps})
    return load_graph(encode_workflow(content)[1])


def test_the_steps_of_a_built_graph_run_behind_the_step_that_built_it() -> None:
    run = begin()
    assert run.kwargs("build") == {"n": 3}
    before = run.run.version

    built = {
        "a": {"task": "t.a", "args": ["${params.n}"]},
        "b": {"task": "t.b", "args": ["${steps.a.result}"]},
        "c": {"task": "t.c", "args": [1], "needs": []},
    }
    assert run.end("build", value={"steps": built, "output": "${steps.b.result}"}) == "applied"

    assert run.states() == {"build": "succeeded", "a": "running", "c": "running", "b": "waiting"}
    assert run.args("a") == [3]
    assert run.run.version == run.graph.version != before
    assert run.graph.content.workflow == "w"
    run.end("a", value=4)
    run.end("c")
    run.end("b", value=5)
    assert (run.run.state, run.value) == ("succeeded", 5)


def test_a_clone_of_a_run_builds_its_graph_again() -> None:
    run = begin()
    begun = run.graph.content
    run.end("build", value={"steps": {"a": {"value": 1}}, "output": "${steps.a.result}"})
    assert run.graph.content != begun

    assert begun_content(run.graph.content) == begun
    plain = replace(begun, steps={"a": StepContent(value=1)})
    assert begun_content(plain) is plain


def test_the_value_of_a_built_graph_without_an_output_has_the_last_steps() -> None:
    run = begin()
    run.end("build", value={"steps": {"a": {"value": 1}, "b": {"value": 2}}})
    assert (run.run.state, run.value) == ("succeeded", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (7, "it is not a content"),
        ({"steps": {}}, "steps: a workflow needs at least one step"),
        ({"steps": {"a": {"task": "t", "args": ["${params.m}"]}}}, "params.m: no parameter 'm'"),
        ({"steps": {"build": {"task": "t"}}}, "step build: the step that builds the graph has this name"),
        ({"steps": {"a": {"task": "t", "builds": True}}}, "step a, builds"),
    ],
)
def test_a_step_that_builds_an_invalid_graph_fails(value: Any, said: str) -> None:
    run = begin()
    run.end("build", value=value)
    assert run.run.state == "failed"
    assert run.step("build").error.startswith("the graph is invalid: ")
    assert said in run.step("build").error


def test_a_run_whose_graph_could_not_be_built_is_built_by_a_redrive() -> None:
    run = begin()
    run.end("build", "failed")
    assert run.run.state == "failed"

    assert run.send("redrive", step="build") == "accepted"
    run.end("build", value={"steps": {"a": {"task": "t.a"}}})
    run.end("a", value=1)
    assert (run.run.state, run.value) == ("succeeded", {"a": 1})


def test_a_redrive_cannot_build_a_built_graph_again() -> None:
    run = begin()
    run.end("build", value={"steps": {"a": {"task": "t.a"}}})
    run.end("a", "failed")

    refusal = run.send("redrive", step="build")
    assert refusal == "refused: step build has built the graph of the run; start a new run"
    assert run.send("redrive") == "accepted"
    assert run.states() == {"build": "succeeded", "a": "running"}


def test_a_built_step_with_a_long_name_fails_the_step_that_built_it() -> None:
    run = begin()

    run.end("build", value={"steps": {"a" * 3_000: {"task": "t.a"}}})

    assert run.states() == {"build": "failed"}
    assert run.step("build").error.startswith(f"the graph is invalid: step {'a' * 80}, name: it has 3,000 characters")


def test_a_cancelled_run_does_not_get_the_graph_until_it_is_redriven() -> None:
    run = begin()
    run.send("cancel", error="no")
    run.end("build", value={"steps": {"a": {"task": "t.a"}}})
    assert (run.run.state, run.states()) == ("cancelled", {"build": "cancelled"})

    run.send("redrive")
    run.end("build", value={"steps": {"a": {"task": "t.a"}}})
    assert run.states() == {"build": "succeeded", "a": "running"}


def test_a_run_with_a_graph_that_was_built_for_another_run_builds_its_own() -> None:
    run = begin(old=StepContent(task="t.old", needs=("build",)))
    run.end("build", value={"steps": {"new": {"value": 2}}})
    assert (run.run.state, run.value) == ("succeeded", {"new": 2})


def test_a_copy_of_a_run_begins_without_the_steps_that_were_built() -> None:
    begun = begun_content(_graph(old=StepContent(task="t.old", needs=("build",))).content)
    plain = WorkflowContent(steps={"a": StepContent(task="t")})
    assert list(begun.steps) == ["build"]
    assert begun_content(plain) is plain


def test_a_signal_that_precedes_the_graph_is_kept_for_its_steps() -> None:
    run = begin()
    assert run.send("signal", name="go", value=b"7") == "waiting"
    assert run.send("signal", name="other") == "waiting"

    run.end("build", value={"steps": {"a": {"wait": "go"}, "b": {"wait": "stop", "needs": ["a"]}}})
    assert run.states() == {"build": "succeeded", "a": "succeeded", "b": "running"}
    assert run.send("signal", name="nobody") == "refused: no step waits for the signal 'nobody'"
