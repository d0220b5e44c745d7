"""Checks of waiting jobs, from their state and their reasons."""

from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq.model.states import JobState
from taskmq.stored_jobs.explanations.checks import CheckName, list_checks
from taskmq.stored_jobs.explanations.queue_condition import WaitReason

_ORDER = ["hold", "dependencies", "time", "scheduler", "pause", "workers", "turn", "limit", "quota", "slot"]


def _reasons(*kinds: Any) -> list[WaitReason]:
    return [WaitReason(kind=kind, text=f"about {kind}") for kind in kinds]


def _states(state: JobState, *kinds: Any, is_placed: bool = False) -> dict[str, str]:
    return {one.name: one.state for one in list_checks(state, _reasons(*kinds), is_placed=is_placed)}


@pytest.mark.parametrize(
    ("state", "kinds", "blocking"),
    [
        (JobState.HELD, ["held", "dependency", "paused"], "hold"),
        (JobState.WAITING, ["dependency"], "dependencies"),
        (JobState.SCHEDULED, ["time", "scheduler"], "time"),
        (JobState.RETRYING, ["time", "error"], "time"),
        (JobState.QUEUED, ["turn", "pool"], "turn"),
        (JobState.QUEUED, ["turn", "quota"], "quota"),
        (JobState.QUEUED, ["turn", "cap"], "turn"),
        (JobState.QUEUED, ["scheduler", "workers", "turn"], "scheduler"),
        (JobState.QUEUED, ["workers", "turn", "limit"], "workers"),
        (JobState.QUEUED, ["turn", "limit"], "limit"),
    ],
)
def test_checks_before_the_blocking_one_are_passed_and_those_after_it_pending(
    state: JobState, kinds: list[str], blocking: str
) -> None:
    states = _states(state, *kinds)

    at = _ORDER.index(blocking)
    assert list(states) == _ORDER
    assert list(states.values()) == ["passed"] * at + ["blocking"] + ["pending"] * (len(_ORDER) - at - 1)


def test_a_dispatched_job_has_passed_its_turn_and_its_limits() -> None:
    passed = dict.fromkeys(_ORDER, "passed")

    assert _states(JobState.DISPATCHED, "message") == {**passed, "slot": "blocking"}
    assert _states(JobState.DISPATCHED, "paused", "message") == {**passed, "pause": "blocking", "slot": "pending"}


def test_a_placed_job_waits_for_room_on_a_node_instead_of_workers_of_its_queue() -> None:
    states = _states(JobState.QUEUED, "placement", "turn", is_placed=True)

    assert list(states) == [*(name for name in _ORDER[:-1] if name != "workers"), "nodes", "slot"]
    assert [name for name, state in states.items() if state == "blocking"] == ["nodes"]


def test_a_pause_that_could_not_be_determined_is_unknown() -> None:
    assert _states(JobState.QUEUED, "turn", "unknown")["pause"] == "unknown"


def test_a_passed_check_has_a_text_unless_a_reason_says_more() -> None:
    checks = {
        one.name: one for one in list_checks(JobState.QUEUED, _reasons("turn", "limit", "pool"), is_placed=False)
    }

    assert (checks["hold"].text, checks["turn"].text, checks["slot"].text) == ("it is not held", "", "")
    assert checks["turn"].kinds == ["cap", "turn", "pool"]


def test_a_check_has_the_time_at_which_it_was_passed_or_began_to_keep_the_job() -> None:
    due, paused, dispatched = (datetime(2027, 1, 30, 17, minute, tzinfo=UTC) for minute in (1, 2, 3))
    reasons = [WaitReason(kind="paused", text="", since=paused), WaitReason(kind="turn", text="", since=due)]

    def since(state: JobState) -> dict[str, datetime]:
        passed_at: dict[CheckName, datetime | None] = {"time": due, "turn": dispatched, "pause": None}
        checks = list_checks(state, reasons, is_placed=False, passed_at=passed_at)
        return {each.name: each.since for each in checks if each.since is not None}

    assert since(JobState.SCHEDULED) == {"pause": paused, "turn": due}
    assert since(JobState.QUEUED) == {"time": due, "pause": paused, "turn": due}
    assert since(JobState.DISPATCHED) == {"time": due, "pause": paused, "turn": dispatched}


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUCCEEDED, JobState.CANCELLED])
def test_a_job_that_runs_or_has_ended_has_no_checks(state: JobState) -> None:
    assert list_checks(state, _reasons("running"), is_placed=False) == []
