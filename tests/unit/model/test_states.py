import itertools

import pytest

from taskmq.model.states import TERMINAL, TRANSITIONS, JobState, can_follow

_STARTS = {JobState.SCHEDULED, JobState.QUEUED}


def test_the_table_has_a_row_for_every_state_and_names_only_states() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert set().union(*TRANSITIONS.values()) <= set(JobState)


def test_every_state_is_reached_from_a_start() -> None:
    reached, found = set[JobState](), set(_STARTS)
    while found - reached:
        reached |= found
        found = set().union(*(TRANSITIONS[state] for state in reached))

    assert reached == set(JobState)


def test_every_state_can_still_end() -> None:
    for state in JobState:
        ends, new = set[JobState](), {state}
        while new - ends:
            ends |= new
            new = set().union(*(TRANSITIONS[each] for each in ends))
        assert ends & TERMINAL, f"a job that is {state} can never end"


def test_terminal_states_are_sticky_except_that_a_dead_job_can_be_replayed() -> None:
    leaving = {(before, after) for before in TERMINAL for after in TRANSITIONS[before]}

    assert leaving == {(JobState.DEAD, JobState.QUEUED)}


def test_no_state_follows_itself() -> None:
    assert not [state for state in JobState if can_follow(state, state)]


@pytest.mark.parametrize(("before", "after"), [*itertools.product(JobState, JobState)])
def test_can_follow_reads_the_table(before: JobState, after: JobState) -> None:
    assert can_follow(before, after) is (after in TRANSITIONS[before])


def test_a_job_runs_only_from_the_queue_and_is_retried_only_from_a_run() -> None:
    assert [state for state in JobState if can_follow(state, JobState.RUNNING)] == [JobState.QUEUED]
    assert [state for state in JobState if can_follow(state, JobState.RETRYING)] == [JobState.RUNNING]
    assert [state for state in JobState if can_follow(state, JobState.SUCCEEDED)] == [JobState.RUNNING]


def test_the_values_are_the_words_people_see() -> None:
    assert [str(state) for state in JobState] == [state.name.lower() for state in JobState]


def test_a_job_ends_in_the_terminal_states_and_in_no_other() -> None:
    assert {state for state in JobState if state.is_final} == TERMINAL
