"""Availability of a unique key."""

import itertools
from typing import Literal

import pytest

from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey, availability
from taskmq.model.states import CHANGEABLE, TERMINAL, JobState

_UNTIL: tuple[Literal["waiting", "running", "over"], ...] = ("waiting", "running", "over")
_STATES = tuple(state for state in JobState if state is not JobState.UNKNOWN)


def _key(until: Literal["waiting", "running", "over"] = "waiting", *, replaces: bool = False) -> UniqueKey:
    return UniqueKey(name="unique:t:1", until=until, replaces=replaces, ttl=1_000)


def _holder(state: JobState, *, has_run: bool = False) -> KeyHolder:
    return KeyHolder("1", state, 3, has_run, 2_000)


@pytest.mark.parametrize("until", _UNTIL)
def test_an_unused_or_expired_key_is_free(
    until: Literal["waiting", "running", "over"],
) -> None:
    assert availability(_key(until), None, now=0) == "free"
    for state, has_run in itertools.product(_STATES, (False, True)):
        assert availability(_key(until), _holder(state, has_run=has_run), now=2_000) == "free"


@pytest.mark.parametrize("state", _STATES)
def test_a_key_stays_taken_for_its_period(state: JobState) -> None:
    ended = state in TERMINAL
    assert availability(_key("over"), _holder(state, has_run=True), now=1_999) == "taken"
    assert availability(_key("running"), _holder(state, has_run=True), now=0) == ("free" if ended else "taken")
    assert availability(_key("waiting"), _holder(state), now=0) == ("free" if ended else "taken")
    assert availability(_key("waiting"), _holder(state, has_run=True), now=0) == "free"


@pytest.mark.parametrize("state", _STATES)
def test_a_job_that_is_not_running_may_be_replaced(state: JobState) -> None:
    waits = state in CHANGEABLE or state is JobState.DISPATCHED
    expected = "replaceable" if waits else "free" if state in TERMINAL else "taken"

    assert availability(_key("waiting", replaces=True), _holder(state), now=0) == expected
    assert availability(_key("running", replaces=True), _holder(state, has_run=True), now=0) == expected
    assert availability(_key("over", replaces=True), _holder(state), now=0) == "taken"
