from itertools import product
from typing import Any

import pytest

from taskmq.model.runs.rules import RULE_NAMES, RuleName, StepRule, StepState, UpstreamCounts, decide, parse_rule

_ENDS = {
    "s": StepState.SUCCEEDED,
    "f": StepState.FAILED,
    "u": StepState.UPSTREAM_FAILED,
    "k": StepState.SKIPPED,
    "c": StepState.CANCELLED,
}


@pytest.mark.parametrize(
    ("rule", "starts", "upstream_failed", "skipped", "waits"),
    [
        ("all_success", "ss", "sf su fk", "sk sc kc", "s- f- --"),
        ("all_failed", "ff fu", "", "sf fk ss", "f- --"),
        ("all_skipped", "kk", "", "ks kf kc", "k-"),
        ("all_done", "ss sf kc uc", "", "", "s- f-"),
        ("one_success", "s- sf sk", "ff fk", "kk kc", "f- --"),
        ("one_failed", "f- sf u-", "", "ss sk", "s-"),
        ("one_done", "s- f- sf", "", "kk kc", "k- --"),
        ("none_failed", "ss sk kc", "sf fk uk", "", "s- f-"),
        ("none_failed_min_one_success", "ss sk", "sf ff", "kk kc", "s-"),
        ("none_skipped", "ss sf sc", "", "sk kf", "s- k-"),
        ("all_done_min_one_success", "ss sf sk", "ff fk", "kk", "s-"),
        ("at_least", "ss ss-", "sf ff", "sk kk", "s- f-"),
    ],
)
def test_a_rule_decides_by_the_ends_of_upstream_steps(
    rule: RuleName, starts: str, upstream_failed: str, skipped: str, waits: str
) -> None:
    expected = {
        StepState.RUNNING: starts,
        StepState.UPSTREAM_FAILED: upstream_failed,
        StepState.SKIPPED: skipped,
        StepState.WAITING: waits,
    }

    for state, cases in expected.items():
        for case in cases.split():
            assert decide(StepRule(rule, 2), _counts(case), len(case)) is state, case


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_a_rule_decides_once_all_upstream_steps_have_ended(rule: RuleName) -> None:
    for case in product(_ENDS, repeat=3):
        assert decide(StepRule(rule, 2), _counts("".join(case)), 3) is not StepState.WAITING


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("all_done", ("all_done", 0)),
        ("all", ("all_success", 0)),
        ("any", ("one_success", 0)),
        ("always", ("all_done", 0)),
        ({"at_least": 2}, ("at_least", 2)),
    ],
)
def test_rules_have_names_and_aliases(value: Any, rule: tuple[str, int]) -> None:
    assert parse_rule(value) == rule


@pytest.mark.parametrize(
    "value", ["some", "at_least", {"at_least": 0}, {"at_least": 1, "x": 2}, {"at_least": "1"}, 3]
)
def test_an_unknown_rule_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a rule; known: all_success"):
        parse_rule(value)


def _counts(case: str) -> UpstreamCounts:
    counts = UpstreamCounts()
    for letter in case.replace("-", ""):
        counts.add(_ENDS[letter])
    return counts
