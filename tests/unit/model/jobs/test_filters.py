from typing import Literal

import msgspec
import pytest

from taskmq.errors import InvalidOption
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.states import JobState


def test_a_filter_without_conditions_matches_everything() -> None:
    assert JobFilter() == EVERYTHING
    assert msgspec.json.encode(EVERYTHING) == b"{}"


def test_filters_are_values() -> None:
    first, second = JobFilter(tasks=("a",), tenant=""), JobFilter(tasks=("a",), tenant="")

    assert first == second
    assert {first: 1}[second] == 1
    with pytest.raises(AttributeError):
        first.tenant = "acme"  # type: ignore[misc]  # that is what is tried


def test_a_filter_travels_as_json() -> None:
    which = JobFilter(states=frozenset({JobState.FAILED}), labels=(("team", "ops"),), min_attempt=2)

    assert msgspec.json.decode(msgspec.json.encode(which), type=JobFilter) == which


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (JobFilter(), [None, None, None]),
        (JobFilter(states=frozenset({JobState.FAILED})), [False, None, None]),
        (JobFilter(states=frozenset({JobState.FAILED, JobState.SUCCEEDED})), [False, None, None]),
        (JobFilter(states=frozenset({JobState.FAILED, JobState.EXPIRED})), [False, False, None]),
        (JobFilter(states=frozenset({JobState.FAILED}), retried="any"), [None, None, None]),
        (JobFilter(states=frozenset({JobState.FAILED}), retried="yes"), [True, True, True]),
        (JobFilter(retried="no"), [False, False, False]),
    ],
)
def test_a_filter_for_failures_excludes_retried_jobs(which: JobFilter, expected: list[bool | None]) -> None:
    states = (JobState.FAILED, JobState.EXPIRED, JobState.SUCCEEDED)
    assert [which.wants_retried(state) for state in states] == expected


@pytest.mark.parametrize("via", ["broker", "any"])
def test_a_filter_for_stored_jobs_must_not_select_sent_ones(via: Literal["broker", "any"]) -> None:
    JobFilter().check_stored()
    JobFilter(via="store").check_stored()
    with pytest.raises(InvalidOption, match=f"via:{via} selects sent jobs"):
        JobFilter(via=via).check_stored()
