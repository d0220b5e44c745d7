"""Start of a node: every rule over every combination of ends before it."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.stores.flows import NodeState, Rule
from taskmq.workflow.model.rules import ParentCounts, decide

_COUNTS = st.builds(ParentCounts, *[st.integers(0, 2)] * 3)
_RULES: tuple[Rule, ...] = get_args(Rule)


@pytest.mark.parametrize(
    ("rule", "starts_after"),
    [
        ("all", {"succeeded"}),
        ("any", {"succeeded", "succeeded, failed", "succeeded, other", "all kinds"}),
        ("none_failed", {"succeeded", "other", "succeeded, other"}),
        ("always", {"succeeded", "failed", "other", "succeeded, failed", "succeeded, other", "all kinds"}),
    ],
)
def test_a_node_starts_after_the_ends_that_its_rule_names(rule: Rule, starts_after: set[str]) -> None:
    ends = {
        "succeeded": ParentCounts(1, 0, 0),
        "failed": ParentCounts(0, 1, 0),
        "other": ParentCounts(0, 0, 1),
        "succeeded, failed": ParentCounts(1, 1, 0),
        "succeeded, other": ParentCounts(1, 0, 1),
        "all kinds": ParentCounts(1, 1, 1),
    }

    found = {name for name, parents in ends.items() if decide(rule, parents, is_complete=True) is NodeState.READY}

    assert found == starts_after


@given(st.sampled_from(_RULES), _COUNTS)
def test_a_node_that_never_starts_has_failed_only_if_a_previous_one_has(rule: Rule, parents: ParentCounts) -> None:
    state = decide(rule, parents, is_complete=True)

    assert state in {NodeState.READY, NodeState.UPSTREAM_FAILED if parents.failed else NodeState.SKIPPED}


@given(st.sampled_from(_RULES), _COUNTS)
def test_only_a_first_success_starts_a_node_before_all_have_ended(rule: Rule, parents: ParentCounts) -> None:
    is_started = rule == "any" and parents.succeeded > 0

    assert decide(rule, parents, is_complete=False) is (NodeState.READY if is_started else NodeState.WAITING)
