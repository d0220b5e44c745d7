"""Samples of rules about runs: sums, maxima, and ratios to the usual duration."""

from typing import Any

import pytest

from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.run_figures import RunFigures, run_samples

NIGHTLY = RunFigures(
    tenant="acme", workflow="nightly", failed=2, longest=5_000, oldest=91_000, usual=2_000, earlier=7, due=40_000
)
HOURLY = RunFigures(tenant="acme", workflow="hourly", failed=1, longest=300, usual=100, earlier=20, due=90_000)
IDLE = RunFigures(tenant="acme", workflow="idle")
ALL = [HOURLY, IDLE, NIGHTLY]
NOW = 100_000


def _samples(metric: Any, figures: list[RunFigures], **fields: Any) -> dict[str, float]:
    return run_samples(AlertRule(name="r", metric=metric, threshold=1, **fields), figures, NOW)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("runs_failed", {"workflow:nightly": 2, "workflow:hourly": 1, "workflow:idle": 0}),
        ("run_late", {"workflow:nightly": 60, "workflow:hourly": 10}),
        ("run_duration", {"workflow:nightly": 4.5, "workflow:hourly": 3}),
    ],
)
def test_each_workflow_has_its_figure(metric: str, expected: dict[str, float]) -> None:
    assert _samples(metric, ALL, each="workflow") == expected


@pytest.mark.parametrize(("metric", "expected"), [("runs_failed", 3), ("run_late", 60), ("run_duration", 4.5)])
def test_all_workflows_together_have_their_sum_or_their_maximum(metric: str, expected: float) -> None:
    assert _samples(metric, ALL) == {"": expected}


def test_a_rule_covers_the_workflows_of_its_pattern() -> None:
    assert _samples("runs_failed", ALL, workflow="night*") == {"": 2}
    assert _samples("runs_failed", ALL, workflow="hourly", each="workflow") == {"workflow:hourly": 1}
    assert _samples("runs_failed", ALL, workflow="weekly") == {}


def test_tenants_with_the_same_workflow_have_one_figure_of_the_instance() -> None:
    other = RunFigures(tenant="other", workflow="nightly", failed=3, due=10_000)
    assert _samples("runs_failed", [NIGHTLY, other], each="workflow") == {"workflow:nightly": 5}
    assert _samples("run_late", [NIGHTLY, other], each="workflow") == {"workflow:nightly": 90}


def test_a_run_that_is_due_in_the_future_is_not_late() -> None:
    assert _samples("run_late", [RunFigures(tenant="", workflow="w", due=NOW + 5)]) == {"": 0}


def test_a_duration_without_enough_earlier_runs_has_no_figure() -> None:
    assert _samples("run_duration", [NIGHTLY], at_least=8) == {}
    assert _samples("run_duration", [NIGHTLY], at_least=7) == {"": 4.5}
    assert _samples("run_duration", [IDLE]) == {}
    assert _samples("run_duration", [RunFigures(tenant="", workflow="w", usual=5, earlier=3)]) == {}


def test_a_run_that_still_runs_counts_with_its_time_until_now() -> None:
    live = RunFigures(tenant="", workflow="w", oldest=NOW - 900, usual=0, earlier=1)
    assert _samples("run_duration", [live]) == {"": 900}
