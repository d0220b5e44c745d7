"""Jobs cancelled in every state, in real worker processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from taskmq.errors import JobCancelled
from taskmq.model.states import Cancellation, JobState
from tests.cli.kit import Result, run_here
from tests.e2e.kit import Project, until

_GRACE = 0.3


def ends_as_cancelled(project: Project, job_id: str) -> float:
    """Return the seconds until a waiter for the result knows."""
    began = time.monotonic()
    with pytest.raises(JobCancelled, match="nobody needs it"):
        project.app.job(job_id).result(timeout=20)
    return time.monotonic() - began


def test_a_running_job_is_stopped_however_it_runs(project: Project) -> None:
    project.start(cancel_grace=_GRACE)
    seconds: dict[str, float] = {}
    for kind in ("gated", "threaded", "heavy"):
        job = project.send(kind, kind)
        project.wait_for("started", kind)

        assert project.app.job(job).cancel("nobody needs it") is Cancellation.UNKNOWN
        seconds[kind] = ends_as_cancelled(project, job)

        assert project.app.job(job).cancel() is Cancellation.ENDED
    # The worker continues with the same slots.
    assert project.app.tasks["jobs.quick"].send(4).result(timeout=20) == 8
    assert project.ledger_lines("finished", "gated") == project.ledger_lines("finished", "heavy") == []
    until(lambda: project.waiting() == 0, "all is acknowledged")
    print("cancel to known:", {kind: round(value, 3) for kind, value in seconds.items()})


def test_cancelled_queued_and_delayed_jobs_never_run_even_after_a_restart(project: Project) -> None:
    queued = project.send("quick", 1)
    delayed = project.app.tasks["jobs.quick"].options(delay=1.5).send(2)
    project.send("quick", 3)
    assert project.app.job(queued).cancel("nobody needs it") is Cancellation.UNKNOWN
    assert delayed.cancel("nobody needs it")

    run = project.start()
    project.wait_for("ran", "3")
    ends_as_cancelled(project, queued)
    run.signal()
    assert run.wait() == 0
    project.start()

    ends_as_cancelled(project, delayed.id)
    assert project.ledger_lines("ran", "1") == project.ledger_lines("ran", "2") == []
    assert project.app.job(delayed.id).state() is JobState.CANCELLED


def test_a_job_is_cancelled_even_if_its_worker_is_killed_in_the_meantime(project: Project) -> None:
    run = project.start()
    job = project.send("gated", "a")
    project.wait_for("started", "a")
    for pid in run.children:
        os.kill(pid, signal.SIGSTOP)
    assert project.app.job(job).cancel("nobody needs it") is Cancellation.UNKNOWN
    for pid in run.children:
        os.kill(pid, signal.SIGKILL)

    ends_as_cancelled(project, job)
    assert len(project.ledger_lines("started", "a")) == 1
    until(lambda: project.waiting() == 0, "all is acknowledged")


def test_the_command_line_cancels_too(local_project: Project) -> None:
    project = local_project
    project.start()
    job = project.send("gated", "a")
    project.wait_for("started", "a")

    def cancel(job_id: str) -> Result:
        words = ("--app", "jobs:app", "job", "cancel", job_id, "--reason", "nobody needs it")
        return run_here(project.folder, *words, env=project.environment)

    first = cancel(job)
    assert first.code == 3
    assert "in case it waits at the broker or runs" in first.err
    ends_as_cancelled(project, job)
    again = cancel(job)
    assert again.code == 3
    assert "has already ended" in again.err


@pytest.mark.rabbitmq
def test_redis_notifies_workers_on_rabbitmq(tmp_path: Path, amqp_url: str, redis_url: str) -> None:
    project = Project(tmp_path, amqp_url, redis_url)
    try:
        project.start(cancel_grace=_GRACE)
        job = project.send("gated", "a")
        project.wait_for("started", "a")
        assert project.app.job(job).cancel("nobody needs it") is Cancellation.UNKNOWN
        ends_as_cancelled(project, job)
    finally:
        project.close()
