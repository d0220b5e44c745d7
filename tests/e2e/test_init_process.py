"""A worker that is process 1, as in a container whose image has no init."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.supervisor.orphans import Orphans
from tests.cli.kit import PATIENCE, environment
from tests.servers import eventually

_APP = """\
import os
import subprocess
from pathlib import Path

from taskmq import TaskMQ

app = TaskMQ("local://.taskmq", state="local://.taskmq")


@app.task
def leave() -> list[int]:
    # The shell ends at once, and what it has started in the background is given to process 1.
    script = "sleep 0.1 & echo $!; sleep 0.1 & echo $!"
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@app.task
def present(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@app.task
def parent() -> int:
    # Of the worker's process: the supervisor.
    return os.getppid()
"""


@pytest.fixture
def init_process(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker in a separate process namespace."""
    if os.geteuid() != 0:
        pytest.skip("a namespace of processes needs root")
    (tmp_path / "shop.py").write_text(_APP)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
                *(sys.executable, "-m", "taskmq", "worker", "shop:app"),
            ],
            cwd=tmp_path,
            env=environment(),
            stdout=log,
            stderr=log,
        )
        with process:
            yield process
            if process.poll() is None:
                process.kill()


def test_a_worker_that_is_process_1_reaps_the_leftovers_of_its_tasks(
    tmp_path: Path, init_process: "subprocess.Popen[bytes]"
) -> None:
    url = f"local://{tmp_path}/.taskmq"
    app = TaskMQ(url, state=url)

    @app.task(name="shop.leave")
    def leave() -> list[int]:
        raise NotImplementedError

    @app.task(name="shop.present")
    def present(pids: list[int]) -> list[int]:
        raise NotImplementedError

    @app.task(name="shop.parent")
    def parent() -> int:
        raise NotImplementedError

    eventually(lambda: "waiting for jobs" in (tmp_path / "log").read_text(), "a worker", within=PATIENCE)
    orphans = [pid for job in [leave.send() for _ in range(4)] for pid in job.result(timeout=30)]

    assert parent.send().result(timeout=30) == 1
    assert len(orphans) == 8
    eventually(lambda: present.send(orphans).result(timeout=30) == [], "all collected", within=PATIENCE)
    # Its own processes are unaffected.
    assert leave.send().result(timeout=30)
    assert "replac" not in (tmp_path / "log").read_text()
    (pid,) = Path(f"/proc/{init_process.pid}/task/{init_process.pid}/children").read_text().split()
    os.kill(int(pid), signal.SIGTERM)
    assert init_process.wait(PATIENCE.total_seconds()) == 0


def test_a_worker_that_is_any_other_process_reaps_none() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        orphans = Orphans()

        orphans.collect()
        orphans.collect()

        assert child.wait() == 0
