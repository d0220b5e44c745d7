"""The long-running commands: `worker`, `beat` and `dev`."""

import os
import re
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.cli.kit import PATIENCE, Here, Started, at_broker, declare, exists, fill, names_in, run_here, run_process
from tests.servers import eventually

_MARK = "TASKMQ_TEST_MARK"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Set an environment variable that marks all processes of a tree; kill the rest of the tree at the end."""
    yield {_MARK: str(tmp_path)}
    for pid in _find_marked(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def _find_marked(mark: str) -> list[int]:
    """Return the running processes with this mark."""
    wanted = f"{_MARK}={mark}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                # It has ended in the meantime, or waits to be reaped.
                continue
    return found


# worker


@pytest.mark.nightly("tests/cli/test_job.py::test_an_ended_running_or_failed_job_is_shown_without_its_values")
def test_a_worker_answers_the_operator_unless_control_is_disabled(shop: Path, taskmq: Here) -> None:
    options = ("--name", "deaf", "--no-control", "--events", "off")
    with (
        Started(shop, "worker", "shop:app", "--name", "hears") as one,
        Started(shop, "worker", "shop:app", *options) as other,
    ):
        one.says("waiting for jobs")
        other.says("waiting for jobs")

        def names() -> list[str]:
            return [row["name"] for row in taskmq("-o", "json", "workers").data]

        assert eventually(names, "an answer", within=PATIENCE) == ["hears"]


def test_a_burst_runs_waiting_jobs_and_ends_with_0(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    fill("images", ["a", "b"])
    fill("images", ["c"], task="shop.fail")

    assert taskmq("worker", "shop:app", "--burst").code == 0

    assert names_in("images") == []
    assert names_in("images.dlq") == ["c"]


@pytest.mark.parametrize("count", ["1", "-1"])
def test_a_limit_of_one_start_is_refused(shop: Path, taskmq: Here, count: str) -> None:
    ended = taskmq("worker", "shop:app", "--burst", f"--max-crashes={count}")

    assert ended.code == 2
    assert "--max-crashes: at least 2, or 0 for no limit" in ended.err


def test_a_burst_runs_only_the_named_queues(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    fill("images", ["a"])
    fill("ticks", ["b"], task="shop.tick")

    assert (
        taskmq("worker", "shop:app", "--burst", "-Q", "ticks", "-c", "2", "--prefetch", "3", "--grace", "1s").code
        == 0
    )

    assert names_in("images") == ["a"]
    assert names_in("ticks") == []


@pytest.mark.nightly("tests/cli/test_services.py::test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c")
def test_several_processes_end_together(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    fill("images", [str(number) for number in range(50)])

    assert taskmq("worker", "shop:app", "--burst", "--processes", "2").code == 0

    assert names_in("images") == []


def test_the_banner_describes_the_worker_and_is_not_data(shop: Path) -> None:
    result = run_here(shop, "worker", "shop:app", "--burst")

    assert (result.code, result.out) == (0, "")
    assert "shop:app at local://.taskmq" in result.err
    assert "images, ticks" in result.err
    assert "shop.double, shop.fail, shop.sleep, shop.tick" in result.err


def test_a_quiet_worker_prints_nothing(shop: Path) -> None:
    result = run_process(shop, "--quiet", "worker", "shop:app", "--burst")

    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.nightly("tests/cli/test_services.py::test_a_quiet_worker_prints_nothing")
def test_a_quiet_worker_or_beat_prints_nothing_when_it_is_stopped(shop: Path, mark: dict[str, str]) -> None:
    with (
        Started(shop, "--quiet", "worker", "shop:app", env=mark) as worker,
        Started(shop, "--quiet", "beat", "shop:app", env=mark) as beat,
    ):
        # They run if the worker consumes the emissions of beat.
        eventually(lambda: exists("ticks") and _is_consumed("ticks"), "both running", within=PATIENCE)

        codes = [worker.signal_and_wait(signal.SIGTERM), beat.signal_and_wait(signal.SIGTERM)]

    assert codes == [0, 0]
    assert (worker.said, beat.said) == ("", "")


def _is_consumed(queue: str) -> bool:
    (found,) = at_broker(lambda broker: broker.stats([queue]))
    return found.consumers > 0


def test_the_settings_of_a_worker_come_from_the_file(shop: Path, taskmq: Here) -> None:
    (shop / "taskmq.toml").write_text('app = "shop:app"\nconcurrency = 0\n')

    result = taskmq("worker", "--burst")
    given = taskmq("worker", "--burst", "--concurrency", "1")

    assert (result.code, given.code) == (2, 0)
    assert "--concurrency" in result.err


@pytest.mark.nightly("tests/cli/test_services.py::test_the_settings_of_a_worker_come_from_the_file")
def test_the_process_bounds_of_a_worker_may_come_from_the_file(shop: Path, taskmq: Here) -> None:
    (shop / "taskmq.toml").write_text('app = "shop:app"\nprocesses = "1-2"\n')

    result = taskmq("worker", "--burst")

    assert result.code == 2
    assert "--processes 1-2 --burst" in result.err
    assert taskmq("worker", "--burst", "--processes", "1").code == 0


@pytest.mark.parametrize(
    "tokens",
    [
        ["-c", "0"],
        ["--processes", "0"],
        ["--prefetch", "0"],
        ["-c", "-1"],
        ["--grace", "soon"],
        ["-Q", "images.dlq"],
        ["--processes", "4-1"],
        ["--max-jobs", "0"],
        ["--max-memory", "much"],
        ["--health-port", "http"],
        ["--kill-unresponsive", "1s"],
        ["--processes", "1-2", "--burst"],
    ],
    ids=" ".join,
)
def test_an_impossible_worker_is_wrong_usage(shop: Path, taskmq: Here, tokens: list[str]) -> None:
    result = taskmq("worker", "shop:app", "--burst", *tokens)

    assert (result.code, result.out) == (2, "")


@pytest.mark.parametrize(
    "target",
    [
        "nowhere:app",
        *(
            pytest.param(
                target,
                marks=pytest.mark.nightly("tests/cli/test_services.py::test_a_worker_with_a_broken_app_ends_with_2"),
            )
            for target in ("shop:nothing", "empty:app")
        ),
    ],
)
def test_a_worker_with_a_broken_app_ends_with_2(shop: Path, target: str) -> None:
    (shop / "empty.py").write_text("from taskmq import TaskMQ\napp = TaskMQ()\n")

    result = run_process(shop, "worker", target)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("taskmq worker: ")
    assert "Traceback" not in result.err


def test_an_interrupt_drains(shop: Path, mark: dict[str, str]) -> None:
    declare("images", "ticks")
    with Started(shop, "worker", "shop:app", env=mark) as worker:
        worker.says("waiting for jobs")

        assert worker.signal_and_wait(signal.SIGINT) == 0

    assert _find_marked(mark[_MARK]) == []


@pytest.mark.nightly("tests/cli/test_services.py::test_an_interrupt_drains")
def test_a_term_drains_and_under_nohup_a_hangup_ends_and_replaces_nothing(shop: Path, mark: dict[str, str]) -> None:
    declare("images", "ticks")
    with (
        Started(shop, "worker", "shop:app", env=mark, nohup=True) as worker,
        Started(shop, "beat", "shop:app", env=mark, nohup=True) as beat,
    ):
        worker.says("waiting for jobs")
        beat.says("1 schedules")
        assert [_ignores(each.process.pid, signal.SIGHUP) for each in (worker, beat)] == [True, True]

        assert worker.signal_and_wait(signal.SIGTERM) == 0
        assert beat.signal_and_wait(signal.SIGTERM) == 0

    assert _find_marked(mark[_MARK]) == []


def _ignores(pid: int, number: signal.Signals) -> bool:
    (mask,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.nightly(
    "tests/cli/test_services.py::test_a_beat_emits_until_it_is_stopped_and_reports_health_and_counts"
)
def test_a_hangup_ends_beat_in_order(shop: Path) -> None:
    with Started(shop, "beat", "shop:app") as beat:
        beat.says("1 schedules")

        assert beat.signal_and_wait(signal.SIGHUP) == 0


@pytest.mark.rabbitmq
def test_a_worker_on_rabbitmq_shows_its_address_without_the_password(shop: Path, amqp_url: str) -> None:
    result = run_here(shop, "--url", amqp_url, "worker", "shop:app", "--burst")

    assert result.code == 0, result.err
    assert "amqp://guest@127.0.0.1:" in result.err
    assert "guest:guest" not in result.err


# beat


def test_beat_without_a_state_is_wrong_usage(shop: Path, taskmq: Here) -> None:
    result = taskmq("--url", "amqp://127.0.0.1:1/", "beat", "shop:app")

    assert (result.code, result.out) == (2, "")
    assert "state" in result.err


def test_a_beat_emits_until_it_is_stopped_and_reports_health_and_counts(
    shop: Path, mark: dict[str, str], taskmq: Here, tmp_path: Path
) -> None:
    health = str(tmp_path / "health")
    with Started(shop, "beat", "shop:app", "--health-port", health, env=mark) as beat:
        beat.says("1 schedules")
        beat.says("health at")
        declare("ticks")
        eventually(lambda: len(names_in("ticks")) >= 3, "three ticks", within=PATIENCE)
        assert taskmq("probe", "live", "--socket", health).code == 0
        assert taskmq("probe", "ready", "--socket", health).code == 0
        status, metrics = (_get_page(health, page) for page in ("status", "metrics"))

        assert beat.signal_and_wait(signal.SIGTERM) == 0

    assert "Traceback" not in beat.said
    assert _find_marked(mark[_MARK]) == []
    assert '"schedules":1' in status
    assert 'taskmq_schedule_late_seconds_count{task="shop.tick"} ' in metrics


def _get_page(path: str, page: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"GET /{page} HTTP/1.1\r\n\r\n".encode())
        with connection.makefile() as answer:
            return answer.read()


def test_a_scheduler_without_a_store_is_wrong_usage(shop: Path, taskmq: Here) -> None:
    result = taskmq("scheduler", "shop:app")

    assert (result.code, result.out) == (2, "")
    assert "store" in result.err


@pytest.mark.nightly("tests/unit/scheduler/test_scheduler.py")
def test_a_scheduler_stops_with_6_on_a_rolled_back_store(shop: Path) -> None:
    file = shop / "jobs.db"

    def marks() -> list[int]:
        with closing(sqlite3.connect(file)) as store:
            return [int(note) for (note,) in store.execute("SELECT note FROM lease WHERE key LIKE 'mark:%'")]

    with Started(shop, "scheduler", "shop:app", "--store", f"sqlite:///{file}") as scheduler:
        scheduler.says("acquired partitions")
        eventually(lambda: any(marks()), "a mark that was confirmed", within=PATIENCE)
        with closing(sqlite3.connect(file, isolation_level=None)) as store:

            def has_ended() -> bool:
                # Once more, since the scheduler may just have written the next one.
                store.execute("UPDATE lease SET note = '0' WHERE key LIKE 'mark:%'")
                return scheduler.process.poll() is not None

            eventually(has_ended, "its end", within=PATIENCE, every=timedelta(milliseconds=200))

        assert scheduler.process.returncode == 6
        assert "lost transactions: it has mark 0 of this scheduler" in scheduler.said


@pytest.mark.nightly(
    "tests/faults/test_beat.py::test_every_instant_is_executed_once_whatever_happens_to_the_replicas"
)
def test_two_beats_emit_each_instant_once(shop: Path, mark: dict[str, str]) -> None:
    with Started(shop, "beat", "shop:app", env=mark) as one, Started(shop, "beat", "shop:app", env=mark) as other:
        for beat in (one, other):
            beat.says("1 schedules")
        declare("ticks")
        eventually(lambda: len(names_in("ticks")) >= 5, "five ticks", within=PATIENCE)

    emitted = names_in("ticks")
    assert len(set(emitted)) == len(emitted)


# dev


def test_watching_without_its_package_is_wrong_usage(
    shop: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the package were not installed.
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    result = taskmq("worker", "shop:app", "--watch")

    assert (result.code, result.out) == (2, "")
    assert "taskmq[watch]" in result.err


def test_dev_without_the_watch_package_says_so_and_continues(
    home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    result = taskmq("dev", "nowhere:app")

    assert result.code == 2
    assert result.err.startswith("not reloading on changes: run pip install 'taskmq[watch]'")


def _version_of(number: int) -> str:
    return (
        "from taskmq import TaskMQ\n"
        "app = TaskMQ()\n"
        "@app.task(queue='images')\n"
        f"async def version() -> int: return {number}\n"
        "@app.every('100ms')\n"
        "@app.task(queue='ticks')\n"
        "async def tick() -> None:\n"
        "    with open('ticks', 'a') as file: file.write('.')\n"
    )


def _run_version(taskmq: Here) -> object:
    result = taskmq("-o", "json", "send", "live.version", "--queue", "images", "--wait", "--timeout", "10s")
    assert result.code == 0, result.err
    return result.data["result"]


def test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c(
    home: Path, taskmq: Here, mark: dict[str, str]
) -> None:
    module = home / "live.py"
    module.write_text(_version_of(1))

    with Started(home, "dev", "live:app", env=mark) as dev:
        dev.says("waiting for jobs")
        assert _run_version(taskmq) == 1
        # Beat runs, too, and so do its tasks.
        eventually((home / "ticks").exists, "the first tick", within=PATIENCE)

        module.write_text(_version_of(2))
        eventually(lambda: _run_version(taskmq) == 2, "the new code running", within=PATIENCE)

        assert len(_find_marked(mark[_MARK])) >= 3
        assert dev.signal_and_wait(signal.SIGINT) == 0

    eventually(lambda: not _find_marked(mark[_MARK]), "the end of all processes", within=PATIENCE)


@pytest.mark.nightly("tests/cli/test_services.py::test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c")
def test_dev_keeps_the_old_code_until_the_new_starts(home: Path, taskmq: Here, mark: dict[str, str]) -> None:
    module = home / "live.py"
    module.write_text(_version_of(1))

    with Started(home, "dev", "live:app", env=mark) as dev:
        dev.says("waiting for jobs")
        assert _run_version(taskmq) == 1

        module.write_text("this is no Python\n")
        dev.says("the new code did not start")
        assert _run_version(taskmq) == 1

        module.write_text(_version_of(2))
        eventually(lambda: _run_version(taskmq) == 2, "the mended code running", within=PATIENCE)


@pytest.mark.nightly("tests/cli/test_services.py::test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c")
def test_dev_runs_stored_jobs_and_has_a_dashboard_without_a_sign_in(
    home: Path, taskmq: Here, mark: dict[str, str]
) -> None:
    (home / "live.py").write_text(f"{_version_of(1)}@app.task\ndef say() -> None: print('hello')\n")
    place = ("--app", "live:app", "--store", "sqlite:///.taskmq/jobs.db", "-o", "json")

    with Started(home, "dev", "live:app", "--port", "0", env=mark) as dev:
        dev.says("export TASKMQ_APP=live:app TASKMQ_STORE=sqlite:///.taskmq/jobs.db")
        dev.says("waiting for jobs")
        submitted = taskmq("job", "submit", "live.say", *place)
        assert submitted.code == 0, submitted.err
        job = submitted.data["job_id"]

        def state() -> object:
            return taskmq("job", "show", job, *place).data["state"]

        eventually(lambda: state() == "succeeded", "the end of the job", within=PATIENCE)
        assert "hello" in taskmq("job", "logs", job, "--attempt", "1", *place).out
        assert "hello" not in taskmq("job", "logs", job, "--attempt", "2", *place).out

        dev.says("taskmq server")
        (address,) = re.findall(r"at (http://[0-9.:]+)/", dev.said)
        assert httpx.get(f"{address}/ui/").text.startswith("<!doctype html>")
        assert httpx.get(f"{address}/api/v1/server").json()["is_development"] is True
        assert httpx.get(f"{address}/api/v1/jobs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 401


@pytest.mark.nightly("tests/cli/test_services.py::test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c")
def test_dev_reloads_schedules_and_the_signatures_that_the_server_checks(home: Path, mark: dict[str, str]) -> None:
    module = home / "live.py"
    module.write_text(_version_of(1))

    with Started(home, "dev", "live:app", "--port", "0", env=mark) as dev:
        dev.says("taskmq server")
        (address,) = re.findall(r"at (http://[0-9.:]+)/", dev.said)
        refused = httpx.post(f"{address}/api/v1/jobs", json={"task": "live.version", "kwargs": {"step": 3}})
        assert refused.status_code == 422, refused.text

        module.write_text(
            _version_of(2).replace("version()", "version(step: int)") + "@app.every('100ms')\n"
            "@app.task(queue='ticks')\n"
            "async def tock() -> None:\n"
            "    open('tocks', 'a').close()\n"
        )

        def is_accepted() -> bool:
            try:
                answer = httpx.post(f"{address}/api/v1/jobs", json={"task": "live.version", "kwargs": {"step": 3}})
            except httpx.TransportError:
                return False
            return answer.status_code == 201

        eventually(is_accepted, "the server's new code", within=PATIENCE)
        eventually((home / "tocks").exists, "the first run by the new schedule", within=PATIENCE)


@pytest.mark.nightly("tests/cli/test_services.py::test_dev_runs_reloads_and_ends_with_all_its_processes_at_ctrl_c")
def test_a_killed_dev_leaves_no_process_behind(home: Path, mark: dict[str, str]) -> None:
    (home / "live.py").write_text(_version_of(1))

    with Started(home, "dev", "live:app", env=mark) as dev:
        dev.says("waiting for jobs")
        eventually((home / "ticks").exists, "the first tick", within=PATIENCE)
        assert len(_find_marked(mark[_MARK])) >= 3

        dev.signal_and_wait(signal.SIGKILL)

    eventually(lambda: not _find_marked(mark[_MARK]), "the end of all processes", within=PATIENCE)


def test_dev_without_a_process_is_wrong_usage(shop: Path, taskmq: Here) -> None:
    assert taskmq("dev", "shop:app", "--processes", "0").code == 2


@pytest.mark.nightly("tests/cli/test_services.py::test_a_worker_with_a_broken_app_ends_with_2")
def test_dev_with_a_missing_app_ends_with_2(home: Path, mark: dict[str, str]) -> None:
    result = run_process(home, "dev", "nowhere:app", env=mark)

    assert (result.code, result.out) == (2, "")
    assert result.err.count("module 'nowhere' not found") == 1
    assert _find_marked(mark[_MARK]) == []
