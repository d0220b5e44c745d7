"""The supervisor with real processes: health, ordered replacement, restarts, scaling."""

import http.client
import json
import os
import pty
import re
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from taskmq.durable.health import Address
from taskmq.supervisor.config import RecycleLimits, SupervisorConfig
from tests.e2e.kit import Project, Run, is_alive, until
from tests.unit.supervisor.test_systemd import Ear

ANY_PORT = Address()


def _get(run: Run, path: str) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of one page."""
    status, body = _page(run, path)
    return status, json.loads(body)


def _metric(run: Run, series: str) -> float:
    _, body = _page(run, "/metrics")
    (line,) = [line for line in body.decode().splitlines() if line.startswith(series)]
    return float(line.split()[-1])


def _page(run: Run, path: str) -> tuple[int, bytes]:
    until(lambda: "health at" in run.log, "health is served", details=lambda: run.log)
    found = re.search(r"health at 127\.0\.0\.1:(\d+)", run.log)
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _jobs(run: Run) -> int:
    return int(_get(run, "/status")[1]["jobs"])


def test_a_worker_is_live_and_ready_and_only_live_while_it_drains(project: Project) -> None:
    run = project.start(supervision=SupervisorConfig(processes=2, health=ANY_PORT))
    project.wait_for_consumers(2)
    project.send("gated", "g")
    project.wait_for("started", "g")

    assert _get(run, "/live") == (200, {"live": True})
    assert _get(run, "/ready") == (200, {"ready": True})
    until(
        lambda: (
            [
                job["job_id"] and job["task"]
                for slot in _get(run, "/status")[1]["slots"]
                for job in (slot["worker"] or {"jobs": []})["jobs"]
            ]
            == ["jobs.gated"]
        ),
        "the status has the running job",
    )
    status = _get(run, "/status")[1]
    assert [slot["state"] for slot in status["slots"]] == ["running", "running"]
    assert {slot["pid"] for slot in status["slots"]} == set(run.children)

    run.signal()
    run.wait_for_log("draining")
    assert _get(run, "/ready") == (503, {"ready": False, "reason": "stopping"})
    assert _get(run, "/live")[0] == 200
    project.open("g")
    assert run.wait() == 0
    assert "drained in" in run.log


def test_a_worker_without_a_broker_is_live_but_not_ready(local_project: Project) -> None:
    project = local_project
    with socket.socket() as unanswered:
        unanswered.bind(("127.0.0.1", 0))
        project.url = f"amqp://127.0.0.1:{unanswered.getsockname()[1]}/"
        run = project.start(wait=False, supervision=SupervisorConfig(health=ANY_PORT))
        until(lambda: "slot 0 starting" in _get(run, "/ready")[1]["reason"], "it says why it is not ready")
        assert _get(run, "/ready")[0] == 503
        assert _get(run, "/live") == (200, {"live": True})
        run.signal()
        assert run.wait() == 0


_BROKEN_STATE = """
from pathlib import Path
from jobs import app
from taskmq_local.state.results import LocalResults

put = LocalResults.put


async def put_once_mended(self, record, **options):
    if not Path("mended").exists():
        raise ZeroDivisionError
    return await put(self, record, **options)


LocalResults.put = put_once_mended
"""


def test_a_worker_with_only_unsettled_slots_is_not_ready_until_they_are_settled(local_project: Project) -> None:
    project = local_project
    project.write(_BROKEN_STATE, "broken.py")
    run = project.start("broken:app", supervision=SupervisorConfig(health=ANY_PORT), concurrency=2)
    until(lambda: _get(run, "/ready") == (200, {"ready": True}), "it is ready")
    for number in range(4):
        project.send("quick", number)

    until(lambda: _get(run, "/ready")[0] == 503, "it is not ready", details=lambda: run.log)
    assert "where no outcome can be settled (its log says why)" in _get(run, "/ready")[1]["reason"]
    assert len(project.ledger_lines("ran", "0")) <= 1
    (project.folder / "mended").touch()

    until(lambda: _get(run, "/ready")[0] == 200, "it is ready again", details=lambda: run.log)
    until(lambda: _jobs(run) == 4, "all jobs have ended", details=lambda: run.log)
    assert sorted(line[1] for line in project.ledger if line[0] == "ran") == ["0", "1", "2", "3"]
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly("tests/e2e/test_supervision.py::test_a_worker_is_live_and_ready_and_only_live_while_it_drains")
def test_a_hanging_process_is_not_live(local_project: Project) -> None:
    run = local_project.start(supervision=SupervisorConfig(health=ANY_PORT, liveness_timeout=2.5))
    (child,) = run.children
    assert _get(run, "/live")[0] == 200

    os.kill(child, signal.SIGSTOP)

    until(lambda: _get(run, "/live")[0] == 503, "it is not live")
    assert f"process {child} has been silent for" in _get(run, "/live")[1]["reason"]
    os.kill(child, signal.SIGCONT)
    until(lambda: _get(run, "/live")[0] == 200, "it is live again")
    run.signal()
    assert run.wait() == 0


def test_a_process_that_hangs_for_too_long_is_killed_and_its_jobs_run_elsewhere(project: Project) -> None:
    run = project.start(supervision=SupervisorConfig(unresponsive_after=5))
    (child,) = run.children
    project.send("gated", "g")
    project.wait_for("started", "g")

    os.kill(child, signal.SIGSTOP)

    run.wait_for_log(f"worker process {child} was silent for")
    project.wait_for("started", "g", count=2)
    project.open("g")
    project.wait_for("finished", "g")
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly("tests/unit/supervisor/test_fleet_counts.py")
def test_a_crash_is_in_the_status_with_its_signal_and_the_counts_stay(local_project: Project) -> None:
    project = local_project
    run = project.start(supervision=SupervisorConfig(health=ANY_PORT))
    (child,) = run.children
    for number in range(5):
        project.send("quick", number)
    until(lambda: _jobs(run) == 5, "five jobs are counted")

    os.kill(child, signal.SIGKILL)
    until(lambda: run.children not in ([], [child]) and _get(run, "/ready")[0] == 200, "another one is there")

    status = _get(run, "/status")[1]
    assert status["jobs"] == 5
    assert _metric(run, 'taskmq_jobs_total{queue="default",state="succeeded",task="jobs.quick"}') == 5
    assert status["ends"] == {"signal": 1}
    assert status["slots"][0]["last_ending"] == "was killed by SIGKILL"
    assert status["slots"][0]["failures"] == 1
    project.send("quick", 6)
    until(lambda: _jobs(run) == 6, "they go on from there")
    assert _metric(run, 'taskmq_jobs_total{queue="default",state="succeeded",task="jobs.quick"}') == 6
    assert _metric(run, 'taskmq_worker_process_ends_total{how="signal"}') == 1
    run.signal()
    assert run.wait() == 0


_HANDLING = """
import signal
from jobs import app


def handle(*_):
    raise RuntimeError("not now")


signal.signal(signal.SIGUSR1, handle)
"""


@pytest.mark.nightly("tests/unit/run/test_signal_handlers.py")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_raising_signal_handler_during_a_run_changes_nothing(local_project: Project, loop: str) -> None:
    project = local_project
    project.write(_HANDLING, "handling.py")
    if loop == "asyncio":
        project.write("raise ImportError", "uvloop.py")
    run = project.start("handling:app", supervision=SupervisorConfig(health=ANY_PORT))
    (child,) = run.children
    project.send("gated", "g")
    project.wait_for("started", "g")

    os.kill(child, signal.SIGUSR1)

    run.wait_for_log("RuntimeError: not now")
    project.open("g")
    project.wait_for("finished", "g")
    assert run.children == [child]
    assert len(project.ledger_lines("started", "g")) == 1
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly(
    "tests/unit/supervisor/test_recycle_limits.py::test_a_process_at_a_limit_is_replaced_and_the_message_names_the_limit"
)
def test_a_process_at_its_limit_is_replaced_without_a_gap_or_a_second_run(project: Project) -> None:
    total = 200
    run = project.start(
        supervision=SupervisorConfig(processes=2, limits=RecycleLimits(jobs=40), health=ANY_PORT),
        concurrency=4,
        prefetch=4,
    )
    project.wait_for_consumers(2)
    before = set(run.children)
    for number in range(total):
        project.send("nap", number)
        if number % 20 == 0:
            assert project.stats()[0].consumers >= 2, "never fewer processes than configured"

    until(lambda: len(project.ledger) >= total, "all have run", details=lambda: run.log)
    until(lambda: not before & set(run.children), "both were replaced", details=lambda: run.log)

    assert sorted(int(line[1]) for line in project.ledger) == list(range(total))
    assert " jobs; its successor is process " in run.log
    assert _get(run, "/status")[1]["replaced"] >= 2
    assert "starting another" not in run.log
    run.signal()
    assert run.wait() == 0
    assert project.waiting() == 0


def test_a_hangup_replaces_the_processes_one_by_one_and_running_jobs_finish(project: Project) -> None:
    run = project.start(supervision=SupervisorConfig(processes=2, health=ANY_PORT))
    project.wait_for_consumers(2)
    before = set(run.children)
    project.send("gated", "g")
    project.wait_for("started", "g")

    run.signal(signal.SIGHUP)
    until(lambda: len(set(run.children) - before) >= 1, "a new process is there")
    project.open("g")

    run.wait_for_log("all processes were replaced")
    assert len(run.children) == 2
    assert not before & set(run.children)
    assert len(project.ledger_lines("started", "g")) == 1
    assert _get(run, "/ready")[0] == 200
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly(
    "tests/e2e/test_reload.py::test_code_that_does_not_start_is_rejected_and_the_old_worker_continues"
)
def test_a_hangup_with_code_that_does_not_start_keeps_all_old_processes(local_project: Project) -> None:
    project = local_project
    run = project.start(processes=2)
    project.wait_for_consumers(2)
    before = set(run.children)
    project.write("def")

    run.signal(signal.SIGHUP)

    run.wait_for_log("the new code did not start: keeping the old worker")
    until(lambda: set(run.children) == before, "only the old ones are there")
    project.send("quick", 1)
    project.wait_for("ran", "1")
    run.signal()
    assert run.wait() == 0


def test_a_hangup_in_a_terminal_drains_because_the_terminal_is_gone(local_project: Project) -> None:
    mine, its = pty.openpty()
    run = local_project.start(stdin=its)
    os.close(its)

    run.signal(signal.SIGHUP)

    assert run.wait() == 0
    os.close(mine)
    assert "restarting" not in run.log


@pytest.mark.nightly(
    "tests/unit/supervisor/test_systemd.py::test_systemd_is_told_when_the_service_is_ready_and_its_status_and_its_stop"
)
def test_systemd_is_told_when_the_service_is_ready_reloaded_and_stopping(
    local_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"taskmq-supervision-{os.getpid()}"
    ear, heard = Ear(f"\0{name}"), list[str]()

    def hears(words: str, *, count: int = 1) -> None:
        def has_heard() -> bool:
            heard.extend(ear.heard)
            return heard.count(words) >= count

        until(has_heard, words, details=lambda: str(heard))

    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    try:
        run = local_project.start(processes=2)
        hears("READY=1")
        hears("STATUS=2 of 2 processes take jobs")
        hears("WATCHDOG=1")

        run.signal(signal.SIGHUP)
        hears("READY=1", count=2)
        assert any(words.startswith("RELOADING=1") for words in heard)
        run.wait_for_log("all processes were replaced")

        run.signal()
        hears("STOPPING=1")
        assert run.wait() == 0
    finally:
        ear.close()


@pytest.mark.nightly(
    "tests/e2e/test_supervision.py::test_a_process_that_hangs_for_too_long_is_killed_and_its_jobs_run_elsewhere"
)
def test_a_process_that_hangs_while_it_drains_is_killed_and_delays_nothing(project: Project) -> None:
    run = project.start(supervision=SupervisorConfig(processes=1, drained_after=0.5), grace=0.5)
    (old,) = run.children
    project.send("gated", "g")
    project.wait_for("started", "g")
    os.kill(old, signal.SIGSTOP)

    run.signal(signal.SIGHUP)

    run.wait_for_log(f"worker process {old} has not drained within 1 s: killing it")
    run.wait_for_log("all processes were replaced")
    project.wait_for("started", "g", count=2)
    project.open("g")
    project.wait_for("finished", "g")
    run.signal()
    assert run.wait() == 0


def test_a_stop_in_the_middle_of_a_restart_ends_everything(local_project: Project) -> None:
    project = local_project
    run = project.start(processes=2)
    project.wait_for_consumers(2)
    project.write(project.folder.joinpath("jobs.py").read_text() + "\nnote('importing', 'it')\ntime.sleep(600)\n")

    run.signal(signal.SIGHUP)
    project.wait_for("importing", "it")
    run.signal()

    assert run.wait(within=10) == 0


@pytest.mark.nightly(
    "tests/unit/supervisor/test_autoscale.py::test_scaling_reaches_the_maximum_within_seconds_under_an_overload"
)
def test_more_processes_come_with_more_load_and_go_with_it(project: Project) -> None:
    run = project.start(
        supervision=SupervisorConfig(processes=1, most=3, calm=2.0, health=ANY_PORT), concurrency=2, prefetch=2
    )
    (first,) = run.children
    for number in range(12):
        project.send("gated", f"g{number}")

    project.wait_for_consumers(3)
    status = _get(run, "/status")[1]
    assert (status["least"], status["most"], status["wanted"]) == (1, 3, 3)
    until(lambda: bool(_get(run, "/status")[1]["queues"].get("default")), "it knows how many wait")
    for number in range(12):
        project.open(f"g{number}")

    for number in range(12):
        assert len(project.wait_for("finished", f"g{number}")) == 1
    until(lambda: run.children == [first], "only the oldest is left", details=lambda: run.log)
    run.signal()
    assert run.wait() == 0
    assert project.waiting() == 0


@pytest.mark.nightly(
    "tests/unit/worker/test_worker.py::test_a_draining_worker_requeues_waiting_jobs_in_order_and_finishes_the_others"
)
def test_waiting_jobs_of_a_draining_worker_are_requeued_without_a_charge(project: Project) -> None:
    run = project.start(concurrency=1, prefetch=10)
    for number in range(6):
        project.send("gated", f"g{number}")
    project.wait_for("started", "g0")
    if project.url.startswith("amqp"):
        until(lambda: project.stats()[0].ready == 0, "the worker has all in its hands")

    run.signal()
    run.wait_for_log("draining")
    until(lambda: sum(entry.ready for entry in project.stats()) == 5, "what was not started is back")
    project.open("g0")
    assert run.wait() == 0
    again = project.start()
    for number in range(1, 6):
        ((attempt, _),) = project.wait_for("started", f"g{number}")
        assert attempt == "1"
        project.open(f"g{number}")
        project.wait_for("finished", f"g{number}")
    again.signal()
    assert again.wait() == 0
    assert len(project.ledger_lines("started", "g0")) == 1


def test_a_health_address_in_use_is_reported_at_the_start(local_project: Project) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address(port=taken.getsockname()[1])
        run = local_project.start(wait=False, supervision=SupervisorConfig(health=address))

        assert run.wait() == 1
    assert f"health cannot be served at {address}" in run.log
    assert run.children == []


def _answers_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        asking.sendall(b"GET /ready HTTP/1.1\r\n\r\n")
        return asking.recv(100).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(
            signal.SIGTERM,
            marks=pytest.mark.nightly(
                "tests/e2e/test_supervision.py::test_a_health_socket_is_reopened_after_a_stop_or_a_crash"
            ),
        ),
    ],
)
def test_a_health_socket_is_reopened_after_a_stop_or_a_crash(local_project: Project, number: signal.Signals) -> None:
    # Paths of sockets are short.
    path = Path(tempfile.gettempdir(), f"taskmq-health-{os.getpid()}")
    supervision = SupervisorConfig(health=Address(path=str(path)))
    run = local_project.start(supervision=supervision)
    children = run.children
    assert _answers_on(path)
    run.signal(number)
    run.wait()
    until(lambda: not any(map(is_alive, children)), "the workers have ended")

    run = local_project.start(supervision=supervision)
    assert _answers_on(path)
    run.signal()
    assert run.wait() == 0
    assert not path.exists()
