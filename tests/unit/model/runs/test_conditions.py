from typing import Any

import pytest

from taskmq.model.runs.conditions import ConditionError, parse_condition
from taskmq.model.runs.paths import Path, find_value

_PARAMS = {"n": 3, "x": 2.5, "text": "eu-west", "yes": True, "none": None, "list": [1, "a", [2]], "map": {"k": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "params.yes",
        "true and not false",
        "not null",
        "params.n == 3",
        "params.n != 3 or params.n >= 3",
        "params.n < 4 and params.n <= 3 and params.n > 2",
        "params.x == 2.5",
        "-1 < 0",
        "1e3 == 1000.0",
        "params.text == 'eu-west'",
        'params.text > "a"',
        '"west" in params.text',
        "'k' in params.map",
        "params.n in [1, 2, 3]",
        "4 not in [1, params.n]",
        "[] == []",
        "true != 1",
        "not (params.n in ['3', true])",
        "not not params.yes",
        "params.missing == null",
        "not params.none.deeper",
        "params.list[2][0] == 2",
        "false or false or params.yes",
        "(params.n == 1 or params.n == 3) and params.yes",
    ],
)
def test_a_condition_holds(text: str) -> None:
    assert parse_condition(text).is_met(_look_up)


@pytest.mark.parametrize("text", ["0", "''", "[]", "null", "params.none", "params.n == '3'", "true and false"])
def test_a_condition_does_not_hold(text: str) -> None:
    assert not parse_condition(text).is_met(_look_up)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a path, a literal or"),
        ("params.n ==", "not 'the end'"),
        ("params.n = 3", "cannot parse '= 3'"),
        ("params.n 3", "expected the end of the condition, not '3'"),
        ("(true", r"expected '\)', not 'the end'"),
        ("[1 2]", "expected ',', not '2'"),
        ("3 not 4", "expected 'in' after 'not', not '4'"),
        ("and", "expected a path"),
        ("unknown", "does not begin with params"),
        ("'open", "cannot parse"),
        ("__import__('os')", "does not begin with"),
        ("not " * 50 + "true", "nested more than 40 deep"),
        ("(" * 50 + "true" + ")" * 50, "nested more than 40 deep"),
        ("[" * 50 + "]" * 50, "nested more than 40 deep"),
        ("'" + "x" * 2_000 + "'", "the maximum is 2000"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("params.n < 'a'", "cannot compare int < str"),
        ("params.none > 1", "cannot compare null > int"),
        ("true <= 1", "cannot compare bool <= int"),
        ("'a' >= 1", "cannot compare str >= int"),
        ("1 in params.text", "cannot look for int in str"),
        ("1 in 2", "cannot look for int in int"),
    ],
)
def test_a_comparison_of_different_kinds_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason):
        parse_condition(text).is_met(_look_up)


def test_a_condition_lists_its_paths() -> None:
    paths = parse_condition("steps.a.result.ok and params.n in [steps.b.result]").paths

    assert [path.text for path in paths] == ["steps.a.result.ok", "params.n", "steps.b.result"]


def _look_up(path: Path) -> Any:
    return find_value(_PARAMS, path)
