"""Workers as real processes: start, signals, crashes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from taskmq.errors import TaskFailed
from taskmq.worker.child_protocol import ChildSpec
from taskmq.worker.config import WorkerConfig
from tests.e2e.kit import Project, is_alive, until


def test_a_worker_starts_runs_and_drains_at_the_first_signal(project: Project) -> None:
    run = project.start(wait=False, processes=2)
    ready = run.wait_until_ready()
    assert ready["app"] == "jobs:app"
    assert ready["queues"] == ["default"]
    assert "jobs.quick" in ready["tasks"]

    job = project.app.tasks["jobs.quick"].send(21)
    assert job.result(timeout=20) == 42
    for kind in ("gated", "threaded", "heavy"):
        project.send(kind, kind)
        project.wait_for("started", kind)

    run.signal()
    # An idle process ends silently.
    until(lambda: run.log.count(" draining: ") == len(run.children), "none takes more", details=lambda: run.log)
    late = project.send("quick", 1)
    for kind in ("gated", "threaded", "heavy"):
        assert run.exit_code is None
        project.open(kind)

    assert run.wait() == 0
    for kind in ("gated", "threaded", "heavy"):
        assert len(project.ledger_lines("finished", kind)) == 1
    assert project.ledger_lines("ran", "1") == []
    assert project.app.job(late).state().value == "unknown"
    assert project.waiting() == 1


def test_a_second_signal_requeues_runs_for_the_next_worker_without_an_attempt(
    project: Project,
) -> None:
    run = project.start(grace=60)
    for kind in ("gated", "threaded", "heavy"):
        project.send(kind, kind)
        project.wait_for("started", kind)

    run.signal()
    run.wait_for_log("draining")
    run.signal()

    assert run.wait() == 0
    assert project.waiting() == 3

    again = project.start()
    for kind in ("gated", "threaded", "heavy"):
        (_, _), (attempt, _) = project.wait_for("started", kind, count=2)
        assert attempt == "1"
        project.open(kind)
        project.wait_for("finished", kind)
    again.signal()
    assert again.wait() == 0
    assert project.waiting() == 0


def test_two_signals_in_a_row_count_twice_even_for_a_busy_worker(local_project: Project) -> None:
    project = local_project
    run = project.start(grace=60)
    (child,) = run.children
    project.send("gated", "g")
    project.wait_for("started", "g")
    os.kill(child, signal.SIGSTOP)

    run.signal()
    run.wait_for_log("stopping: draining")
    run.signal()
    run.wait_for_log("stopping: giving back")
    os.kill(child, signal.SIGCONT)

    assert run.wait(within=20) == 0
    assert project.waiting() == 1


def test_after_the_grace_period_a_worker_ends_whatever_its_tasks_do(local_project: Project) -> None:
    project = local_project
    run = project.start(grace=0.2)
    for kind in ("stubborn", "stuck_thread"):
        project.send(kind, kind)
        project.wait_for("started", kind)

    run.signal()

    assert run.wait(within=20) == 0
    assert project.ledger_lines("ignored", "stubborn")
    assert "1 tasks did not react to cancellation" in run.log
    assert project.waiting() == 2


def test_a_thread_started_by_a_coroutine_does_not_keep_the_worker_alive(local_project: Project) -> None:
    project = local_project
    run = project.start(grace=0.2)
    project.send("stuck_thread", "t")
    project.wait_for("started", "t")

    run.signal()

    assert run.wait(within=20) == 0
    assert project.waiting() == 1


def test_a_third_signal_kills(local_project: Project) -> None:
    project = local_project
    run = project.start(grace=60)
    project.send("stubborn", "s")
    project.wait_for("started", "s")

    for words in ("draining", "giving back", "killing"):
        run.signal()
        run.wait_for_log(words)

    run.wait(within=5)
    assert project.waiting() == 1


@pytest.mark.nightly("tests/e2e/test_worker_processes.py::test_a_worker_starts_runs_and_drains_at_the_first_signal")
def test_an_interrupt_from_the_terminal_drains_like_a_term(local_project: Project) -> None:
    run = local_project.start()

    run.signal(signal.SIGINT)

    assert run.wait() == 0


def test_the_workers_drain_and_end_when_their_supervisor_is_killed(project: Project) -> None:
    run = project.start(processes=2)
    children = run.children
    assert len(children) == 2
    project.send("gated", "g")
    project.wait_for("started", "g")

    run.signal(signal.SIGKILL)
    run.wait()
    run.wait_for_log("the supervisor is gone: draining", count=2)
    assert any(is_alive(pid) for pid in children)
    project.open("g")

    until(lambda: not any(is_alive(pid) for pid in children), "the workers have ended")
    assert len(project.ledger_lines("finished", "g")) == 1
    assert project.waiting() == 0


def test_a_killed_worker_is_restarted_and_its_jobs_run_again(project: Project) -> None:
    run = project.start()
    (child,) = run.children
    for kind in ("gated", "heavy"):
        project.send(kind, kind)
        project.wait_for("started", kind)

    os.kill(child, signal.SIGKILL)

    run.wait_for_log(f"worker process {child} was killed by SIGKILL (once); starting another in 0.5 s")
    for kind in ("gated", "heavy"):
        project.wait_for("started", kind, count=2)
        project.open(kind)
        project.wait_for("finished", kind)
    assert [len(project.ledger_lines("finished", kind)) for kind in ("gated", "heavy")] == [1, 1]
    run.signal()
    assert run.wait() == 0
    assert project.waiting() == 0


@pytest.mark.nightly("tests/e2e/test_worker_processes.py::test_a_killed_worker_is_restarted_and_its_jobs_run_again")
def test_a_supervisor_on_a_plain_loop_sees_the_end_of_a_worker_too(local_project: Project) -> None:
    project = local_project
    run = project.start(loop="asyncio")
    (child,) = run.children
    project.send("spawns", "s")
    project.wait_for("started", "s")

    os.kill(child, signal.SIGKILL)

    project.wait_for("started", "s", count=2)
    project.open("s")
    project.wait_for("finished", "s")
    run.signal()
    assert run.wait() == 0


def test_a_worker_hides_its_secrets_from_the_command_line_and_its_input_from_tasks(local_project: Project) -> None:
    project = local_project
    run = project.start()

    for child in run.children:
        assert b"local://" not in Path(f"/proc/{child}/cmdline").read_bytes()
    project.send("reads", "r")
    assert project.wait_for("read", "r") == [["''"]]
    run.signal()
    assert run.wait() == 0


def test_a_child_process_of_a_task_hides_no_death_of_its_worker_or_supervisor(
    local_project: Project,
) -> None:
    project = local_project
    run = project.start()
    (child,) = run.children
    project.send("spawns", "s")
    project.wait_for("started", "s")

    os.kill(child, signal.SIGKILL)

    project.wait_for("started", "s", count=2)
    project.open("s")
    project.wait_for("finished", "s")
    (successor,) = run.children

    run.signal(signal.SIGKILL)
    run.wait()

    until(lambda: not is_alive(successor), "the worker has ended")


@pytest.mark.nightly("tests/cli/test_services.py::test_a_burst_runs_waiting_jobs_and_ends_with_0")
def test_a_burst_ends_with_zero_once_all_jobs_are_done(project: Project) -> None:
    first = project.start(processes=1)
    first.signal()
    assert first.wait() == 0
    for number in range(100):
        project.send("quick", number)

    run = project.start(processes=2, burst=True, wait=False)

    assert run.wait() == 0
    assert sorted(int(line[1]) for line in project.ledger) == list(range(100))
    assert project.waiting() == 0


BROKEN = {
    "no module": ("nowhere:app", "", "module 'nowhere' not found"),
    "no app": ("broken:app", "app = 1", "no app called 'app'"),
    "two apps": ("broken", "from taskmq import TaskMQ\na, b = TaskMQ(), TaskMQ()", "exactly one app"),
    "a syntax error": ("broken:app", "def", "SyntaxError"),
    "an error": ("broken:app", "1 / 0", "ZeroDivisionError"),
    "a missing dependency": ("broken:app", "import no_such_dependency", "no_such_dependency"),
    "no tasks": ("broken:app", "from taskmq import TaskMQ\napp = TaskMQ('memory://')", "no tasks"),
    "no adapter": (
        "broken:app",
        "from taskmq import TaskMQ\napp = TaskMQ('zmq://x')\n@app.task\ndef f(): ...",
        "zmq",
    ),
    "results without a state": (
        "broken:app",
        "from taskmq import TaskMQ\napp = TaskMQ('amqp://x')\n@app.task(result=True)\ndef f(): ...",
        "result=True",
    ),
}


_IN_THE_GATE = {"an error", "no adapter"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            each,
            marks=()
            if each in _IN_THE_GATE
            else pytest.mark.nightly("tests/cli/test_services.py::test_a_worker_with_a_broken_app_ends_with_2"),
        )
        for each in BROKEN
    ],
)
def test_a_worker_that_cannot_run_at_all_ends_with_two_and_the_reason(local_project: Project, case: str) -> None:
    target, code, words = BROKEN[case]
    local_project.write(code, "broken.py")

    # The number of processes makes no difference: one case is enough.
    run = local_project.start(target, processes=2 if case == "an error" else 1, wait=False)

    assert run.wait() == 2
    assert words in run.log
    assert "starting another" not in run.log


@pytest.mark.nightly(
    "tests/unit/supervisor/test_process_slot.py::test_a_failing_process_restarts_with_growing_pauses_and_the_reason"
)
def test_a_crashing_worker_is_restarted_less_and_less_often(local_project: Project) -> None:
    project = local_project
    project.write(
        "import os\nfrom jobs import app, note\nif os.path.exists('bad'): note('start'); os._exit(3)\n", "crash.py"
    )
    (project.folder / "bad").touch()

    run = project.start("crash:app", wait=False)
    run.wait_for_log("ended with exit code 3 (3 times in a row); starting another in 2.0 s")
    assert "ended with exit code 3 (2 times in a row); starting another in 1.0 s" in run.log
    assert len([line for line in project.ledger if line == ["start"]]) == 3

    (project.folder / "bad").unlink()
    run.wait_until_ready()
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly("tests/e2e/test_supervision.py::test_a_stop_in_the_middle_of_a_restart_ends_everything")
def test_a_supervisor_stopped_during_a_restart_pause_ends_at_once(local_project: Project) -> None:
    project = local_project
    project.write("import os; os._exit(3)", "crash.py")
    run = project.start("crash:app", wait=False)
    run.wait_for_log("starting another in 4.0 s")

    run.signal()

    assert run.wait(within=3) == 0


@pytest.mark.nightly(
    "tests/e2e/test_reload.py::test_code_that_does_not_start_is_rejected_and_the_old_worker_continues"
)
def test_a_module_that_breaks_later_does_not_stop_running_workers(local_project: Project) -> None:
    project = local_project
    run = project.start(processes=2)
    project.wait_for_consumers(2)
    project.send("quick", 1)
    project.wait_for("ran", "1")
    whole = (project.folder / "jobs.py").read_text()
    project.write("def")

    os.kill(run.children[0], signal.SIGKILL)
    run.wait_for_log("ended with exit code 2 (2 times in a row); starting another")
    project.send("quick", 2)
    project.wait_for("ran", "2")
    project.write(whole)
    until(lambda: len(run.children) == 2 and "cannot be imported" in run.log, "two children again")

    run.signal()
    assert run.wait() == 0


def test_an_app_with_very_many_tasks_becomes_ready(local_project: Project) -> None:
    project = local_project
    project.write(
        "from jobs import app\n"
        "for n in range(3000):\n"
        "    app.task(name=f'a.task.with.quite.a.long.name.{n}')(lambda: None)\n",
        "many.py",
    )

    run = project.start("many:app", wait=False)

    assert len(run.wait_until_ready()["tasks"]) > 3000
    run.signal()
    assert run.wait() == 0


def test_a_child_without_a_supervisor_reports_ready_and_drains_when_its_input_ends(
    local_project: Project,
) -> None:
    project = local_project
    project.write("import gc\nfrom jobs import app, note\nnote('collects', gc.isenabled())\n", "loading.py")
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "taskmq.worker.child", str(writing)],
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(writing,),
    )
    os.close(writing)
    assert child.stdin is not None
    order = ChildSpec(target="loading", config=WorkerConfig(name="alone"))
    child.stdin.write(msgspec.json.encode(order) + b"\n")
    child.stdin.flush()

    with os.fdopen(reading, "rb") as status:
        ready = json.loads(status.readline())
    assert ready["app"] == "loading"
    # Only the modules of taskmq are imported without the collector.
    assert project.ledger == [["collects", "True"]]
    project.send("gated", "g")
    project.wait_for("started", "g")
    child.stdin.close()
    project.open("g")

    assert child.wait(40) == 0
    assert len(project.ledger_lines("finished", "g")) == 1


def test_a_failing_task_shows_its_error_to_the_waiting_caller(project: Project) -> None:
    project.write(
        "from jobs import app\n@app.task(retry=None)\ndef fails() -> None:\n    raise LookupError('not here')\n",
        "failing.py",
    )
    project.app.task(name="failing.fails")(lambda: None)
    run = project.start("failing:app")

    with pytest.raises(TaskFailed, match="LookupError: not here") as caught:
        project.app.tasks["failing.fails"].send().result(timeout=20)

    assert "failing.py" in caught.value.traceback
    # Confirmed is not yet counted.
    until(lambda: [entry.ready for entry in project.stats("default.dlq")] == [1], "the dead letter")
    run.signal()
    assert run.wait() == 0
