"""A process that forks workers and schedulers after it has loaded everything.

A start takes milliseconds instead of a second of processor time, so that a campaign can kill a thousand of them.

    Nursery --"worker NAME OPTIONS"--> main --fork--> the worker
            <----------pid------------
"""

import asyncio
import contextlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

from taskmq import TaskMQ
from taskmq.cli import run
from taskmq.worker.config import WorkerConfig
from taskmq.worker.host.event_loop import loop_factory
from taskmq.worker.worker import Worker
from tests.faults.field import environment

_LOADED: Final = ("taskmq_rabbitmq", "taskmq_sql", "taskmq.scheduler", "taskmq.worker", "taskmq.executors")
_READY: Final = "waiting for jobs"


class Forked:
    """A worker or a scheduler, and its log."""

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name = name
        # Another process may have the number after this one.
        self._descriptor = os.pidfd_open(pid)
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def consumes(self) -> bool:
        """Whether a worker has reported that it consumes."""
        return _READY in self.log

    def kill(self) -> None:
        """Kill it (SIGKILL); call it once."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        os.close(self._descriptor)


class Nursery:
    """Starts workers and schedulers of `jobs:app` in a folder; all are killed at its end.

    Args:
        jobs: the source of that module.
        variables: see `environment`.
    """

    def __init__(self, folder: Path, jobs: str, **variables: str) -> None:
        self._folder = folder
        (folder / "jobs.py").write_text(jobs)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=folder,
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start_worker(self, name: str, **options: Any) -> Forked:
        """Start a worker process with options of `WorkerConfig`."""
        return self._start("worker", name, options)

    def start_scheduler(self, name: str) -> Forked:
        return self._start("scheduler", name, {})

    def _start(self, role: str, name: str, options: dict[str, Any]) -> Forked:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps([role, name, options])}\n")
        self._process.stdin.flush()
        log = self._folder / f"log-{name}"
        log.touch()
        return Forked(name, int(self._process.stdout.readline()), log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=40)
        assert self._process.returncode == -signal.SIGKILL


def main() -> None:
    """Fork a process for each line of the standard input, and kill all and itself at its end."""
    for package in map(importlib.import_module, _LOADED):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.rpartition(".")[2].startswith("__") and ".migrations" not in module.name:
                importlib.import_module(module.name)
    # The kernel removes the killed ones.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in iter(sys.stdin.readline, ""):
        role, name, options = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(role, name, options)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


def _become(role: str, name: str, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(f"log-{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.path.insert(0, "")
    if role == "scheduler":
        os._exit(run(["scheduler", "jobs:app"]))
    app: TaskMQ = importlib.import_module("jobs").app
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(app, WorkerConfig(**options)))
    os._exit(0)


async def _work(app: TaskMQ, config: WorkerConfig) -> None:
    worker = Worker(app, config, target="jobs:app")
    ready = asyncio.create_task(worker.is_ready.wait())
    ready.add_done_callback(lambda _: os.write(1, f"{_READY}\n".encode()))
    await worker.run()


if __name__ == "__main__":
    main()
