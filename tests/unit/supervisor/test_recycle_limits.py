"""Limits after which a process is replaced."""

import pytest

from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.supervisor.config import RecycleLimits

MEGABYTE = 1 << 20


def _status(*, ended: int = 0, memory: int = 0, descriptors: int = 0) -> WorkerStatus:
    return WorkerStatus(
        name="w",
        host="h",
        pid=1,
        version="1",
        app="a",
        queues=[],
        state="running",
        slots=1,
        running=0,
        backlog=0,
        ended=ended,
        abandoned=0,
        memory=memory,
        descriptors=descriptors,
        loop_lag=0.0,
        started=0,
    )


def test_a_process_without_limits_continues() -> None:
    status = _status(ended=10**9, memory=1 << 40, descriptors=10**6)

    assert not RecycleLimits()
    assert RecycleLimits().find_reached(status, age=1e6, luck=0) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (RecycleLimits(jobs=100), "100 jobs"),
        (RecycleLimits(memory=512 * MEGABYTE), "512M of memory"),
        (RecycleLimits(descriptors=900), "900 open descriptors"),
    ],
)
def test_a_process_at_a_limit_is_replaced_and_the_message_names_the_limit(limits: RecycleLimits, words: str) -> None:
    there = _status(ended=100, memory=512 * MEGABYTE, descriptors=900)
    before = _status(ended=99, memory=512 * MEGABYTE - 1, descriptors=899)

    assert limits
    assert limits.find_reached(there, age=60, luck=0) == words
    assert limits.find_reached(before, age=60, luck=0) is None


def test_processes_started_together_do_not_end_together() -> None:
    limits = RecycleLimits(jobs=1000)

    assert limits.find_reached(_status(ended=800), age=60, luck=1) == "800 jobs"
    assert limits.find_reached(_status(ended=900), age=60, luck=0.4) is None


def test_the_initial_memory_of_a_process_does_not_end_it_at_once() -> None:
    limits = RecycleLimits(memory=MEGABYTE, descriptors=5, jobs=1)

    assert limits.find_reached(_status(memory=90 * MEGABYTE, descriptors=50), age=5, luck=0) is None
    assert limits.find_reached(_status(memory=90 * MEGABYTE), age=31, luck=0) == "90M of memory"
    assert limits.find_reached(_status(ended=1, memory=90 * MEGABYTE), age=5, luck=0) == "1 jobs"


def test_an_idle_process_is_not_replaced_for_its_jobs() -> None:
    assert RecycleLimits(jobs=1).find_reached(_status(ended=0), age=60, luck=1) is None
