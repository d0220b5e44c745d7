from taskmq.model.states import CHANGEABLE, TERMINAL, TRANSITIONS, UNDERWAY, Cancellation, JobState, can_follow

_STARTS = {JobState.WAITING, JobState.HELD, JobState.SCHEDULED, JobState.QUEUED}
_OF_JOBS = set(JobState) - {JobState.UNKNOWN}


def test_the_table_has_a_row_for_every_state_and_no_others() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert set().union(*TRANSITIONS.values()) <= set(JobState)


def test_every_state_is_reachable_from_a_start() -> None:
    reached, found = set[JobState](), set(_STARTS)
    while found - reached:
        reached |= found
        found = set().union(*(TRANSITIONS[state] for state in reached))

    assert reached == _OF_JOBS


def test_every_state_can_still_end() -> None:
    for state in _OF_JOBS:
        ends, new = set[JobState](), {state}
        while new - ends:
            ends |= new
            new = set().union(*(TRANSITIONS[each] for each in ends))
        assert ends & TERMINAL, f"a {state} job can never end"


def test_an_end_is_final_unless_a_failed_or_cancelled_job_is_sent_again() -> None:
    leaving = {(before, after) for before in TERMINAL for after in TRANSITIONS[before]}

    assert leaving == {(JobState.FAILED, JobState.QUEUED), (JobState.CANCELLED, JobState.QUEUED)}


def test_no_state_follows_itself() -> None:
    assert not [state for state in JobState if can_follow(state, state)]


def test_can_follow_reads_the_table() -> None:
    assert {before: {each for each in JobState if can_follow(before, each)} for before in JobState} == TRANSITIONS


def test_a_job_runs_only_from_the_queue_and_is_retried_only_after_a_run() -> None:
    underway = [JobState.DISPATCHED, JobState.RUNNING]

    # One that runs waits for another worker again where its worker is gone.
    dispatched_from = [state for state in JobState if can_follow(state, JobState.DISPATCHED)]
    assert dispatched_from == [JobState.QUEUED, JobState.RUNNING]
    assert [state for state in JobState if can_follow(state, JobState.RUNNING)] == [
        JobState.QUEUED,
        JobState.DISPATCHED,
    ]
    assert [state for state in JobState if can_follow(state, JobState.RETRYING)] == underway
    assert [state for state in JobState if can_follow(state, JobState.SUCCEEDED)] == underway


def test_a_waiting_job_can_be_cancelled_and_an_ended_one_cannot() -> None:
    assert {state for state in _OF_JOBS if can_follow(state, JobState.CANCELLED)} == CHANGEABLE | UNDERWAY
    assert CHANGEABLE | UNDERWAY | TERMINAL == _OF_JOBS
    assert not CHANGEABLE & UNDERWAY


def test_the_values_are_the_words_that_people_see() -> None:
    assert [str(state) for state in JobState] == [state.name.lower() for state in JobState]


def test_a_job_ends_only_in_a_terminal_state() -> None:
    assert {state for state in JobState if state.is_final} == TERMINAL


def test_among_sent_jobs_only_a_success_is_final() -> None:
    of_the_store = {JobState.EXPIRED, JobState.SKIPPED, JobState.UPSTREAM_FAILED}

    assert {state for state in JobState if state.is_sticky} - of_the_store == {JobState.SUCCEEDED}


def test_a_cancellation_is_true_if_the_job_will_not_run() -> None:
    assert [each for each in Cancellation if each] == [Cancellation.CANCELLED, Cancellation.REQUESTED]
