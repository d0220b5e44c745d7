import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.jobs.dependencies import (
    JobDependency,
    after_upstream,
    end_reason,
    generations,
    reattachment_note,
    unmet_conditions,
)
from taskmq.model.states import TERMINAL, JobState

_NODES = st.integers(0, 12).map(str)
_GRAPHS = st.dictionaries(_NODES, st.lists(_NODES, max_size=4), max_size=12)


def test_a_dependency_is_met_by_the_ends_that_its_condition_names() -> None:
    met = {
        condition: {state for state in TERMINAL if after_upstream(condition, state) is None}
        for condition in ("succeeded", "ended", "failed")
    }

    assert met == {
        "succeeded": {JobState.SUCCEEDED},
        "ended": TERMINAL,
        "failed": {JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED},
    }


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.SKIPPED])
def test_a_failed_dependency_on_success_fails_its_dependents(state: JobState) -> None:
    assert after_upstream("succeeded", state) is JobState.UPSTREAM_FAILED


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.CANCELLED, JobState.SKIPPED])
def test_a_successful_dependency_on_failure_skips_its_dependents(state: JobState) -> None:
    assert after_upstream("failed", state) is JobState.SKIPPED


def test_an_unmet_dependency_names_the_job_and_the_expected_end() -> None:
    assert end_reason(JobDependency("a", "failed"), JobState.SUCCEEDED) == "job a was to be failed, and is succeeded"


def test_a_successful_end_leaves_only_dependencies_on_failure_unmet() -> None:
    assert unmet_conditions(JobState.SUCCEEDED) == ["failed"]
    assert unmet_conditions(JobState.FAILED) == ["succeeded"]
    assert unmet_conditions(JobState.CANCELLED) == ["succeeded", "failed"]


def test_the_note_of_a_reattached_job_names_the_job_that_runs() -> None:
    assert reattachment_note("", "a", "a") == "job a runs again"
    assert reattachment_note("fixed", "a", "b") == "fixed; job a runs again as job b"


def test_jobs_are_sorted_into_generations_and_cycles_remain() -> None:
    upstream = {"a": ["elsewhere"], "b": ["a"], "c": ["a", "b"], "d": ["e"], "e": ["d"], "f": ["e"]}

    assert generations(upstream) == ([["a"], ["b"], ["c"]], ["d", "e", "f"])


@given(_GRAPHS)
def test_every_job_follows_its_dependencies_or_is_in_a_cycle(upstream: dict[str, list[str]]) -> None:
    groups, circular = generations(upstream)

    ordered = [job_id for group in groups for job_id in group]
    assert sorted([*ordered, *circular]) == sorted(upstream)
    place = {job_id: number for number, group in enumerate(groups) for job_id in group}
    for job_id in ordered:
        assert all(place[other] < place[job_id] for other in upstream[job_id] if other in upstream)
    for job_id in circular:
        assert any(other in circular for other in upstream[job_id])
