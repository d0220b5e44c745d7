from typing import Any

import pytest

from taskmq.model.runs.validation import MOST_STEPS, find_wrong_parameter, validate_workflow

_FAULTY: list[tuple[Any, str]] = [
    ({}, "steps: a workflow needs at least one step"),
    ({"steps": []}, "steps: a workflow needs at least one step"),
    ({"steps": {f"s{number}": {} for number in range(MOST_STEPS + 1)}}, "steps: 10001 steps; the maximum is"),
    ({"steps": {"1a": {"task": "t"}}}, "step 1a, name: use letters"),
    ({"steps": {1: {"task": "t"}}}, "step 1, name: use letters"),
    ({"steps": {"a" * 1_001: {"task": "t"}}}, f"step {'a' * 80}, name: it has 1,001 characters, and at most 1,000"),
    ({"params": [], "steps": {"a": {"task": "t"}}}, "params: Expected `object`"),
    ({"color": 1, "steps": {"a": {"task": "t"}}}, "content: Object contains unknown field `color`"),
    ({"output": "${x}", "steps": {"a": {"task": "t"}}}, "output: 'x' does not begin with"),
    ({"output": "${steps.b.result}", "steps": {"a": {"task": "t"}}}, "output: no step 'b'"),
    ({"timeout": "soon", "steps": {"a": {"task": "t"}}}, "timeout: timeout='soon' is not a duration"),
    ({"max_active_runs": 0, "steps": {"a": {"task": "t"}}}, "max_active_runs: Expected `int` >= 1"),
    ({"max_active_runs": 10_001, "steps": {"a": {"task": "t"}}}, "max_active_runs: Expected `int` <= 10000"),
    ({"max_active_runs": "one", "steps": {"a": {"task": "t"}}}, "max_active_runs: Expected `int | null`"),
    ({"max_active_runs": 1, "steps": {"a": {"batch": True}}}, "max_active_runs: a batch takes calls from the start"),
    ({"output": "${params.b}", "steps": {"a": {"task": "t"}}}, "output: params.b: no parameter 'b'"),
]


def test_a_valid_content_has_no_faults() -> None:
    content, faults = validate_workflow(
        {
            "workflow": "nightly",
            "params": {"day": {"type": "string"}},
            "steps": {
                "extract": {"task": "etl.extract", "with": {"day": "${params.day} ${run.id}"}, "retries": 3},
                "pages": {"task": "etl.page", "each": "${steps.extract.result}", "args": ["${item.url}"]},
                "approve": {"wait": "approval", "needs": ["pages"], "timeout": "2d", "on_timeout": {"value": 1}},
                "later": {"wait": "approval", "timeout": "${params.day}"},
                "clean": {"task": "t", "needs": ["pages", "approve"], "rule": {"at_least": 2}, "timeout": "5m"},
            },
            "output": "${steps.clean.result}",
        },
        options=["retries"],
    )

    assert faults == []
    assert content is not None
    assert content.steps["extract"].options == {"retries": 3}


@pytest.mark.parametrize(
    ("step", "field", "message"),
    [
        ("text", "step", "a step is an object"),
        ({}, "task", "and this one has none of them"),
        ({"task": "t", "wait": "s"}, "task", "not task and wait"),
        ({"task": ""}, "task", "the name is empty"),
        ({"task": "t", "wiht": {}}, "wiht", "did you mean 'with'?"),
        ({"task": "t", "retry": 3}, "retry", "did you mean 'retries'?"),
        ({"wait": "s", "with": {}}, "with", "a step of kind wait has no such field"),
        ({"batch": True, "needs": []}, "needs", "a step of kind batch has no such field"),
        ({"task": 3}, "task", "Expected `str`, got `int`"),
        ({"task": "t", "needs": "a"}, "needs", "Expected `array | null`, got `str`"),
        ({"task": "t", "each": [], "limit": -1}, "limit", "must not be negative"),
        ({"task": "t", "each": [], "max_width": 0}, "max_width", "must be from 1 to 100000"),
        ({"wait": "s", "on_timeout": "stop"}, "on_timeout", "is not fail, skip or {value: ...}"),
        ({"wait": "s", "timeout": "soon"}, "timeout", "is not a duration"),
        ({"task": "t", "args": ["${a.b}"]}, "args", "does not begin with"),
        ({"task": "t", "with": {"x": "${params.x"}}, "with", "is not closed"),
        ({"task": "t", "if": "1 +"}, "if", "cannot parse '+'"),
        ({"task": "t", "rule": "some"}, "rule", "is not a rule"),
        ({"task": "t", "rule": "any"}, "rule", "one_success needs 1 upstream steps, and there are 0"),
        ({"task": "t", "rule": {"at_least": 1}}, "rule", "at_least needs 1 upstream steps"),
        ({"task": "t", "rule": "all_done_min_one_success"}, "rule", "needs 1 upstream steps"),
        ({"task": "t", "needs": ["bigin"]}, "needs", "no step 'bigin': did you mean 'begin'?"),
        ({"task": "t", "needs": ["x"]}, "needs", "the step waits for itself"),
        ({"task": "t", "needs": [], "if": "steps.begin.result"}, "needs", "does not run before this one"),
        ({"task": "t", "needs": [], "if": "steps.none.result"}, "needs", "step 'none' does not run before"),
        ({"task": "t", "args": ["${params.dya}"]}, "with", "no parameter 'dya'"),
        ({"task": "t", "args": ["${run.env}"]}, "with", "a run has id, workflow"),
        ({"task": "t", "args": ["${run.id.x}"]}, "with", "a run has id, workflow"),
        ({"task": "t", "args": ["${item}"]}, "with", "only a step with `each` has an item"),
    ],
)
def test_a_faulty_step_is_refused_with_its_field(step: Any, field: str, message: str) -> None:
    content, faults = validate_workflow({"steps": {"begin": {"task": "t"}, "x": step}}, options=["retries"])

    assert content is None
    assert [(fault.step, fault.field) for fault in faults] == [("x", field)]
    assert message in faults[0].message
    assert str(faults[0]).startswith(f"step x, {field}: ")


@pytest.mark.parametrize(("fields", "text"), _FAULTY)
def test_a_faulty_workflow_is_refused_with_its_field(fields: Any, text: str) -> None:
    content, faults = validate_workflow(fields)

    assert content is None
    assert str(faults[0]).startswith(text)


def test_all_steps_of_a_cycle_are_named() -> None:
    steps = {name: {"task": "t", "needs": [other]} for name, other in ("ab", "bc", "ca")}

    _, faults = validate_workflow({"steps": {**steps, "d": {"task": "t"}}})

    assert [fault.step for fault in faults] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("schemas", "params", "wrong"),
    [
        ({}, {}, ""),
        ({"day": {"type": "string"}}, {"day": "monday"}, ""),
        ({"day": {"default": "monday"}}, {}, ""),
        ({}, {"day": 1}, "no parameter 'day': it has none"),
        ({"day": {}}, {"dya": 1}, "no parameter 'dya': did you mean 'day'?"),
        ({"day": {"type": "string"}}, {"day": 1}, "parameter 'day': the value is not of type \"string\""),
        ({"day": {"type": 3}}, {"day": 1}, "parameter 'day': "),
        ({"day": {}, "hour": {}}, {}, "give 'day', 'hour': it has no default"),
    ],
)
def test_parameters_of_a_run_have_to_fit_their_schemas(schemas: Any, params: Any, wrong: str) -> None:
    found = find_wrong_parameter(schemas, params)

    assert found.startswith(wrong)
    assert bool(found) is bool(wrong)


def test_parameters_are_refused_without_the_package_that_checks_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema_rs", None)

    assert "pip install 'taskmq[schemas]'" in find_wrong_parameter({"day": {"type": "string"}}, {"day": "x"})
