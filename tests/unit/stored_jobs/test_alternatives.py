"""Answers and alternatives of waiting jobs, from their reasons and their expected starts."""

from datetime import timedelta
from typing import Any

import pytest

from taskmq.model.states import JobState
from taskmq.model.units import to_datetime
from taskmq.stored_jobs.explanations.alternatives import (
    describe_earlier,
    describe_turn,
    find_answer,
    list_remedies,
)
from taskmq.stored_jobs.explanations.checks import list_checks
from taskmq.stored_jobs.explanations.expected_starts import StartEstimate
from taskmq.stored_jobs.explanations.queue_condition import WaitReason

_NOW = 1_700_000_000_000


def _reasons(*kinds: Any) -> list[WaitReason]:
    return [WaitReason(kind=kind, text=f"about {kind}", subject="s") for kind in kinds]


def _start(position: int, seconds: float) -> StartEstimate:
    likely = to_datetime(_NOW) + timedelta(seconds=seconds)
    return StartEstimate(position=position, earliest=likely, likely=likely, latest=likely)


@pytest.mark.parametrize(
    ("state", "kinds", "answer"),
    [
        (JobState.HELD, ["held", "dependency"], "about held"),
        (JobState.SCHEDULED, ["time", "paused"], "about time"),
        (JobState.QUEUED, ["turn", "pool"], "about turn"),
        (JobState.QUEUED, ["turn", "pool", "quota"], "about quota"),
        (JobState.QUEUED, ["turn", "pool", "cap"], "about cap"),
        (JobState.QUEUED, ["turn", "limit", "cap"], "about cap"),
        (JobState.QUEUED, ["paused", "turn", "limit"], "about paused"),
        (JobState.DISPATCHED, ["message", "error"], "about message"),
        (JobState.RUNNING, ["running", "error"], "about running"),
        (JobState.SUCCEEDED, [], ""),
    ],
)
def test_the_answer_is_the_reason_behind_the_blocking_check(state: JobState, kinds: list[str], answer: str) -> None:
    reasons = _reasons(*kinds)

    assert find_answer(reasons, list_checks(state, reasons, is_placed=False)) == answer


@pytest.mark.parametrize(
    ("position", "answer"),
    [
        (1, "it is next in queue 'pdf', and it is expected to start in 1m 5s"),
        (2, "it waits for its turn in queue 'pdf': 1 job starts before it, and it is expected to start in 1m 5s"),
        (
            4107,
            "it waits for its turn in queue 'pdf': 4,106 jobs start before it, and it is expected to start in 1m 5s",
        ),
    ],
)
def test_the_answer_of_a_job_in_turn_has_its_position_and_its_start(position: int, answer: str) -> None:
    assert describe_turn("pdf", _start(position, 65), _NOW) == answer


def test_each_obstacle_with_a_remedy_has_an_alternative() -> None:
    reasons = _reasons("held", "scheduler", "paused", "workers", "turn", "cap", "cap")

    operator, tenant = (
        [each.text for each in list_remedies(reasons, is_suspended=False, reader=reader)] for reader in (None, "acme")
    )

    assert operator == [
        "release it",
        "start `taskmq scheduler`",
        "resume queue 's' (`taskmq queue resume s`)",
        "start a worker for queue 's'",
        "raise the cap of pool 's'",
    ]
    assert tenant == [operator[0], operator[1], operator[3]]


def test_a_job_held_in_its_run_is_released_once_the_workers_are_updated() -> None:
    (found,) = list_remedies(_reasons("held"), is_suspended=True, reader=None)

    assert found.text == "release it once all workers have the code that began it"


def test_an_alternative_says_what_it_saves() -> None:
    now, raised, widened = _start(4107, 785), _start(212, 80), _start(4107, 390)

    (first,) = describe_earlier("priority", "raise it", raised, than=now, now=_NOW)
    (second,) = describe_earlier("slots", "start one", widened, than=now, now=_NOW)

    assert first.text == (
        "raise it: the job would be at position 212 instead of 4,107 and start in 1m 20s instead of 13m 5s"
    )
    assert second.text == "start one: the job would start in 6m 30s instead of 13m 5s"
    assert (first.start, second.start) == (raised, widened)


@pytest.mark.parametrize("start", [None, _start(3, 10), _start(2, 9.5), _start(4, 11)])
def test_an_alternative_that_saves_less_than_a_second_is_left_out(start: StartEstimate | None) -> None:
    assert describe_earlier("priority", "raise it", start, than=_start(3, 10), now=_NOW) == []
