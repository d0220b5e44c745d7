import itertools

import pytest

from taskmq.model.jobs.changes import (
    Action,
    Decision,
    Refusal,
    decide,
    needs_time,
    ready_state,
    resumption_refusal,
    retry_mode,
)
from taskmq.model.states import CHANGEABLE, TERMINAL, UNDERWAY, JobState, can_follow

_NOW = 1_000
_PAST, _FUTURE = _NOW - 1, _NOW + 1
_ACTIONS: tuple[Action, ...] = ("change", "cancel", "hold", "release", "retry")
_STATES = sorted(TERMINAL | CHANGEABLE | UNDERWAY)


@pytest.mark.parametrize(("due", "expected"), [(_PAST, "queued"), (_NOW, "queued"), (_FUTURE, "scheduled")])
def test_a_job_is_ready_once_its_time_has_come(due: int, expected: str) -> None:
    assert ready_state(due, _NOW) == expected


def _is_sound(decision: Decision | Refusal, state: JobState) -> bool:
    if isinstance(decision, Refusal):
        return bool(decision.reason)
    return decision.state is state or (can_follow(state, decision.state) and not decision.is_request)


def test_every_decision_is_a_transition_of_the_table() -> None:
    asked = itertools.product(_ACTIONS, _STATES, (_PAST, _NOW, _FUTURE))
    decisions = [(*each, decide(each[0], each[1], due=each[2], now=_NOW)) for each in asked]

    assert [each for each in decisions if not _is_sound(each[3], each[1])] == []


@pytest.mark.parametrize(("action", "state"), [*itertools.product(_ACTIONS, sorted(TERMINAL))])
def test_an_ended_job_is_not_changed(action: Action, state: JobState) -> None:
    assert decide(action, state, due=_NOW, now=_NOW) == Refusal(f"has ended: it is {state}")


@pytest.mark.parametrize("state", sorted(UNDERWAY))
def test_a_running_job_can_only_be_asked_to_stop(state: JobState) -> None:
    assert decide("cancel", state, due=_NOW, now=_NOW) == Decision(state, is_request=True)
    for action in set(_ACTIONS) - {"cancel"}:
        refusal = decide(action, state, due=_NOW, now=_NOW)
        assert isinstance(refusal, Refusal)
        assert "can be cancelled" in refusal.reason


@pytest.mark.parametrize("state", sorted(CHANGEABLE))
def test_cancelling_a_waiting_job_is_final(state: JobState) -> None:
    assert decide("cancel", state, due=_NOW, now=_NOW) == Decision(JobState.CANCELLED)


@pytest.mark.parametrize(
    ("state", "due", "after"),
    [
        ("waiting", _PAST, "waiting"),
        ("held", _PAST, "held"),
        ("held", _FUTURE, "held"),
        ("queued", _PAST, "queued"),
        ("queued", _FUTURE, "scheduled"),
        ("scheduled", _PAST, "queued"),
        ("scheduled", _FUTURE, "scheduled"),
        ("retrying", _PAST, "queued"),
        ("retrying", _FUTURE, "retrying"),
    ],
)
def test_a_changed_job_waits_or_is_ready_according_to_its_time(state: str, due: int, after: str) -> None:
    assert decide("change", JobState(state), due=due, now=_NOW) == Decision(JobState(after))


@pytest.mark.parametrize(("action", "state"), [*itertools.product(_ACTIONS, sorted(CHANGEABLE))])
def test_decisions_without_a_time_do_not_depend_on_the_clock(action: Action, state: JobState) -> None:
    # Timers fire due jobs, and a queued job is due.
    due = _PAST if state is JobState.QUEUED else _FUTURE
    assert needs_time(action, is_moved=True)
    if not needs_time(action, is_moved=False):
        assert decide(action, state, due=due, now=None) == decide(action, state, due=due, now=_NOW)


@pytest.mark.parametrize("state", ["waiting", "held", "scheduled", "queued", "retrying"])
def test_a_job_can_be_held_in_any_waiting_state(state: str) -> None:
    assert decide("hold", JobState(state), due=_NOW, now=_NOW) == Decision(JobState.HELD)


def test_a_released_job_continues_according_to_its_time() -> None:
    assert decide("release", JobState.HELD, due=_PAST, now=_NOW) == Decision(JobState.QUEUED)
    assert decide("release", JobState.HELD, due=_FUTURE, now=_NOW) == Decision(JobState.SCHEDULED)


@pytest.mark.parametrize("state", ["waiting", "scheduled", "queued", "retrying"])
def test_only_a_held_job_is_released(state: str) -> None:
    assert decide("release", JobState(state), due=_NOW, now=_NOW) == Refusal(f"is not held: it is {state}")


@pytest.mark.parametrize("state", ["scheduled", "retrying", "held"])
def test_a_retried_job_is_due_now(state: str) -> None:
    assert decide("retry", JobState(state), due=_FUTURE, now=_NOW) == Decision(JobState.QUEUED, is_due=True)


def test_retrying_a_queued_job_changes_nothing() -> None:
    assert decide("retry", JobState.QUEUED, due=_PAST, now=_NOW) == Decision(JobState.QUEUED)


def test_a_job_that_waits_for_others_is_not_retried() -> None:
    refusal = decide("retry", JobState.WAITING, due=_NOW, now=_NOW)

    assert isinstance(refusal, Refusal)
    assert "waits for other jobs" in refusal.reason


@pytest.mark.parametrize(
    ("state", "is_named", "was_asked_to_end", "mode"),
    [
        (JobState.FAILED, True, False, "resume"),
        (JobState.UPSTREAM_FAILED, True, False, "resume"),
        (JobState.CANCELLED, True, False, "resume"),
        (JobState.CANCELLED, True, True, "new"),
        (JobState.FAILED, False, False, "new"),
        (JobState.SUCCEEDED, True, False, "new"),
    ],
)
def test_a_referenced_job_keeps_its_id_on_retry(
    state: JobState, is_named: bool, was_asked_to_end: bool, mode: str
) -> None:
    assert retry_mode(state, is_named=is_named, was_asked_to_end=was_asked_to_end) == mode
    refusal = resumption_refusal(state, was_asked_to_end=was_asked_to_end)
    assert (refusal is None) == (state is not JobState.SUCCEEDED and not was_asked_to_end)
