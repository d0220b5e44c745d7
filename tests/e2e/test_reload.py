"""`--watch`: new code replaces the running one if it starts."""

import os
import signal

import pytest

from tests.e2e.kit import JOBS, Project, until


def _version(number: int) -> str:
    return JOBS + f"\n@app.task\nasync def version() -> None:\n    note('version', {number}, os.getpid())\n"


@pytest.fixture
def project(local_project: Project) -> Project:
    local_project.app.task(name="jobs.version")(lambda: None)
    local_project.write(_version(1))
    return local_project


def _runs_version(project: Project, version: int) -> None:
    def runs() -> bool:
        project.send("version")
        return bool(project.ledger_lines("version", str(version)))

    until(runs, f"version {version} runs")


def test_a_change_replaces_the_worker_and_running_jobs_finish(project: Project) -> None:
    run = project.start(watch=True, processes=2)
    project.wait_for_consumers(2)
    before = set(run.children)
    project.send("gated", "g")
    project.wait_for("started", "g")
    _runs_version(project, 1)

    project.write(_version(2))
    _runs_version(project, 2)
    project.open("g")
    project.wait_for("finished", "g")

    until(lambda: len(run.children) == 2 and not before & set(run.children), "two new children, and no old one")
    assert len(project.ledger_lines("started", "g")) == 1
    run.signal()
    assert run.wait() == 0


def test_code_that_does_not_start_is_rejected_and_the_old_worker_continues(project: Project) -> None:
    run = project.start(watch=True)
    before = run.children

    project.write("def")
    run.wait_for_log("the new code did not start: keeping the old worker")
    _runs_version(project, 1)
    assert run.children == before

    project.write(_version(3))
    _runs_version(project, 3)
    until(lambda: len(run.children) == 1 and run.children != before, "one new child")
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly("tests/e2e/test_reload.py::test_a_change_replaces_the_worker_and_running_jobs_finish")
def test_a_second_change_while_the_old_worker_still_drains_leaves_one_worker(project: Project) -> None:
    run = project.start(watch=True)
    project.send("gated", "g")
    project.wait_for("started", "g")

    for version in (2, 3):
        project.write(_version(version))
        _runs_version(project, version)
    project.open("g")
    project.wait_for("finished", "g")

    until(lambda: len(run.children) == 1, "one child")
    (child,) = run.children
    os.kill(child, signal.SIGKILL)
    until(lambda: len(run.children) == 1 and run.children != [child], "its slot is filled again")
    run.signal()
    assert run.wait() == 0
    assert len(project.ledger_lines("started", "g")) == 1


@pytest.mark.nightly("tests/e2e/test_reload.py::test_a_change_replaces_the_worker_and_running_jobs_finish")
def test_an_old_worker_that_dies_while_the_new_one_starts_does_not_leave_two(project: Project) -> None:
    run = project.start(watch=True)
    (old,) = run.children

    project.write(_version(2) + "\nimport time\nnote('importing', 'it', os.getpid())\ntime.sleep(1)\n")
    project.wait_for("importing", "it")
    os.kill(old, signal.SIGKILL)

    _runs_version(project, 2)
    run.wait_for_log("starting another")
    project.wait_for("importing", "it", count=2)
    until(lambda: len(run.children) == 1, "one child")
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly("tests/e2e/test_supervision.py::test_a_stop_in_the_middle_of_a_restart_ends_everything")
def test_a_stop_while_the_new_worker_starts_ends_both(project: Project) -> None:
    run = project.start(watch=True)

    project.write(JOBS + "\nimport time\nnote('importing', 'it', os.getpid())\ntime.sleep(600)\n")
    project.wait_for("importing", "it")
    run.signal()

    assert run.wait(within=10) == 0


@pytest.mark.nightly(
    "tests/e2e/test_reload.py::test_code_that_does_not_start_is_rejected_and_the_old_worker_continues"
)
def test_code_that_crashes_from_the_start_is_tried_again_when_it_changes(project: Project) -> None:
    project.write("import os; os._exit(3)")
    run = project.start(watch=True, wait=False)
    run.wait_for_log("starting another in 4.0 s")

    project.write(_version(2))
    run.wait_until_ready()

    assert "starting another in 8.0 s" not in run.log
    run.signal()
    assert run.wait() == 0
