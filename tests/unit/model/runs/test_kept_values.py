"""Values of steps that are kept elsewhere: passed on as a whole, and refused where they would have to be read."""

from typing import Any

import pytest

from taskmq.model.envelope import BlobReference, KeptPart, PartPath
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow, load_graph
from taskmq.model.values.light_values import LightValue, keep_whole
from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_BLOB = BlobReference(name="2027/x", size=20_000_002, sha256="00")
_KEPT = keep_whole(_BLOB)


def _begin(steps: dict[str, Any], **fields: Any) -> MemoryRun:
    """Start a run whose step `big` has a value that is kept elsewhere."""
    run = MemoryRun(graph_of({"big": {"task": "t.big"}, **steps}, **fields))
    run.settle()
    run.end("big", value=_KEPT)
    return run


def _parts(value: LightValue) -> dict[PartPath, BlobReference]:
    return {part.at: part.blob for part in value.parts}


def test_a_job_gets_the_values_by_reference_wherever_its_arguments_name_them() -> None:
    run = _begin(
        {"use": {"task": "t.use", "args": [1, "${steps.big.result}"], "with": {"all": {"b": "${steps.big.result}"}}}}
    )

    job = run.job("use")

    assert (job.args, job.kwargs) == (b"[1,null]", b'{"all":{"b":null}}')
    assert job.parts == (KeptPart(("args", 1), _BLOB), KeptPart(("kwargs", "all", "b"), _BLOB))
    run.end("use", value=7)
    assert (run.run.state, run.value) == ("succeeded", {"use": 7})


def test_every_child_gets_the_value_of_an_earlier_step_by_reference() -> None:
    run = _begin(
        {
            "pages": {
                "each": ["a", "b"],
                "task": "t.page",
                "args": ["${steps.big.result}", "${item}"],
                "needs": ["big"],
            }
        }
    )

    assert [run.args("pages", index) for index in range(2)] == [[None, "a"], [None, "b"]]
    assert [run.job("pages", index).parts for index in range(2)] == [(KeptPart(("args", 0), _BLOB),)] * 2


def test_the_list_of_children_refers_to_the_values_that_are_kept_elsewhere() -> None:
    run = MemoryRun(
        graph_of(
            {
                "pages": {"each": [1, 2, 3], "task": "t.page"},
                "merge": {"task": "t.merge", "args": ["${steps.pages.result}"]},
            }
        )
    )
    run.settle()
    for index, value in enumerate(["a", _KEPT, _KEPT]):
        run.end("pages", index=index, value=value)

    job = run.job("merge")

    assert job.args == b'[["a",null,null]]'
    assert [part.at for part in job.parts] == [("args", 0, 1), ("args", 0, 2)]


def test_a_redrive_passes_the_same_reference_on() -> None:
    run = _begin({"use": {"task": "t.use", "args": ["${steps.big.result}"]}})
    before = run.job("use")
    run.end("use", "failed")

    run.send("redrive")

    after = run.job("use")
    assert after.id != before.id
    assert (after.args, after.parts) == (before.args, before.parts)


def test_the_values_of_a_run_and_of_a_value_step_refer_to_what_they_contain() -> None:
    run = _begin({"pair": {"value": [1, "${steps.big.result}"]}}, output={"p": "${steps.pair.result}"})

    assert run.run.state == "succeeded"
    assert isinstance(run.value, LightValue)
    assert bytes(run.value.value) == b'{"p":[1,null]}'
    assert _parts(run.value) == {("p", 1): _BLOB}


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ({"task": "t.use", "args": ["${steps.big.result.size}"]}, "steps.big.result.size"),
        ({"task": "t.use", "args": ["got ${steps.big.result}"]}, "steps.big.result"),
        ({"task": "t.use", "needs": ["big"], "if": "steps.big.result == 1"}, "steps.big.result"),
        ({"each": "${steps.big.result}", "task": "t.use"}, "the list of each"),
        ({"each": [1, "${steps.big.result}"], "task": "t.use"}, "the list of each"),
        ({"workflow": "other", "with": {"p": "${steps.big.result}"}}, "a parameter"),
        ({"sleep": "${steps.big.result}"}, "steps.big.result"),
        ({"wait": "go", "timeout": "${steps.big.result}"}, "steps.big.result"),
    ],
)
def test_a_step_that_would_have_to_read_the_value_fails_and_names_it(step: dict[str, Any], what: str) -> None:
    run = _begin({"use": step})

    assert (run.state("big"), run.state("use")) == ("succeeded", "failed")
    assert run.step("use").error.startswith(f"{what} has 20,000,002 bytes at results_at=, so it can only be a whole")
    assert run.run.state == "failed"


def test_a_child_that_would_have_to_read_the_value_fails_and_names_it() -> None:
    run = _begin({"use": {"each": [1], "task": "t.use", "args": ["${item}: ${steps.big.result}"], "needs": ["big"]}})

    assert run.children("use") == {0: "failed"}
    assert run.step("use", 0).error.startswith("steps.big.result has 20,000,002 bytes")


def test_a_run_whose_output_would_have_to_read_the_value_fails_and_names_it() -> None:
    run = _begin({}, output="${steps.big.result.size}")

    assert run.run.state == "failed"
    assert run.run.error.startswith("output: steps.big.result.size has 20,000,002 bytes")


def test_a_graph_that_is_kept_elsewhere_is_invalid() -> None:
    content = WorkflowContent(steps={"build": StepContent(task="t.build", builds=True)})
    run = MemoryRun(load_graph(encode_workflow(content)[1]))
    run.settle()

    run.end("build", value=_KEPT)

    assert run.step("build").error == "the graph is invalid: it has 20,000,002 bytes and is kept at results_at="
