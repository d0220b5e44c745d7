"""Workers as real processes on a project in a folder of the test, and their traces."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from taskmq import TaskMQ
from taskmq.contracts.broker import QueueStats
from taskmq.model.topology import DEFAULT_QUEUE, WorkQueue, dead_letter_queue
from taskmq.supervisor.config import SupervisorConfig
from taskmq.worker.child_protocol import ChildSpec
from taskmq.worker.config import WorkerConfig
from tests.e2e.supervise import Options
from tests.servers.waiting import eventually

PATIENCE = 30.0
JOBS = '''
import asyncio, os, subprocess, sys, time
from pathlib import Path
from taskmq import Context, RetryPolicy, TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])


def note(*words):
    """One line in the ledger, which no crash tears."""
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (" ".join(map(str, words)) + "\\n").encode())
    os.close(ledger)


@app.task
async def quick(n: int) -> int:
    note("ran", n)
    return 2 * n

@app.task
async def nap(n: int) -> None:
    note("ran", n)
    await asyncio.sleep(0.05)

@app.task
async def gated(context: Context, name: str) -> str:
    note("started", name, context.attempt, os.getpid())
    while not os.path.exists(f"open-{name}"):
        await asyncio.sleep(0.01)
    note("finished", name)
    return name

@app.task
def threaded(context: Context, name: str) -> str:
    note("started", name, context.attempt, os.getpid())
    while not os.path.exists(f"open-{name}") and not context.cancelled:
        time.sleep(0.01)
    note("cancelled" if context.cancelled else "finished", name)
    return name

@app.task(executor="process")
def heavy(context: Context, name: str) -> str:
    note("started", name, context.attempt, os.getpid())
    while not os.path.exists(f"open-{name}"):
        time.sleep(0.01)
    note("finished", name)
    return name

@app.task
async def stubborn(name: str) -> None:
    note("started", name, 1, os.getpid())
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note("ignored", name)

@app.task
async def stuck_thread(name: str) -> None:
    note("started", name, 1, os.getpid())
    await asyncio.to_thread(time.sleep, 600)

@app.task
def reads(name: str) -> None:
    note("read", name, repr(sys.stdin.read()))

@app.task
def spawns(name: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    note("spawned", name, child.pid)
    note("started", name, 1, os.getpid())
    while not os.path.exists(f"open-{name}"):
        time.sleep(0.01)
    note("finished", name)
'''


class Run:
    """A supervised worker."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def children(self) -> list[int]:
        """Return the living worker processes."""
        return [pid for pid in _descendants(self.pid, depth=1) if b"taskmq.worker.child" in _command(pid)]

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until the worker consumes; return its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the worker ended with {self._process.wait()}:\n{self.log}"
        return dict(msgspec.json.decode(line))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self, within: float = PATIENCE) -> int:
        """Wait for the exit code."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker has not ended within {within} s:\n{self.log}") from None

    def wait_for_log(self, words: str, *, count: int = 1) -> None:
        until(lambda: self.log.count(words) >= count, f"{words!r} in the log", details=lambda: self.log)


class LoneWorker:
    """A worker process without a supervisor, which would restart it with growing pauses."""

    def __init__(self, project: "Project", log: Path, *, target: str = "jobs:app", **config: Any) -> None:
        reading, writing = os.pipe()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "taskmq.worker.child", str(writing)],
                cwd=project.folder,
                env=project.environment,
                stdin=subprocess.PIPE,
                stderr=file,
                pass_fds=(writing,),
            )
        os.close(writing)
        assert self.process.stdin is not None
        order = ChildSpec(target=target, config=WorkerConfig(**config))
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.process.stdin.flush()
        self._status = os.fdopen(reading, "rb")
        project.lone_workers.append(self)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ready(self) -> None:
        assert self._status.readline(), "the worker has ended before it was ready"

    def end(self, number: signal.Signals) -> int:
        """End the process; return the exit code."""
        assert self.process.stdin is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stdin.close()
        self._status.close()
        return code


class Project:
    """A folder with tasks, their broker, and the ledger that tasks write."""

    def __init__(self, folder: Path, url: str, state: str) -> None:
        self.folder = folder
        self.url = url
        self.state = state
        self.lone_workers: list[LoneWorker] = []
        self._runs: list[Run] = []
        self.write(JOBS)
        self.app = TaskMQ(url, state=state, name="test")
        self._define()

    def write(self, code: str, name: str = "jobs.py") -> None:
        """Write a module atomically, so that no half of it is imported."""
        fresh = self.folder / f".{name}.new"
        fresh.write_text(code)
        fresh.rename(self.folder / name)

    def start(
        self,
        target: str = "jobs:app",
        *,
        processes: int = 1,
        watch: bool = False,
        wait: bool = True,
        loop: Literal["usual", "asyncio"] = "usual",
        supervision: SupervisorConfig | None = None,
        stdin: int = subprocess.DEVNULL,
        **config: Any,
    ) -> Run:
        """Start a worker, and wait by default until it consumes."""
        order = ChildSpec(target=target, config=WorkerConfig(**config))
        supervision = supervision or SupervisorConfig(processes=processes, watch=(str(self.folder),) if watch else ())
        options = Options(order, supervision, loop=loop)
        log = self.folder / f"log-{len(self._runs)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("supervise.py")),
                    msgspec.json.encode(options).decode(),
                ],
                cwd=self.folder,
                env=self.environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        run = Run(process, log)
        self._runs.append(run)
        if wait:
            run.wait_until_ready()
        return run

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "JOBS_URL": self.url,
            "JOBS_STATE": self.state,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            # `abort_processes` makes them write their stacks.
            "PYTHONFAULTHANDLER": "1",
        }

    def send(self, task: str, *args: Any) -> str:
        """Send one call; return its job id."""
        return str(self.app.tasks[f"jobs.{task}"].send(*args).id)

    def open(self, name: str) -> None:
        """Release a gated task."""
        (self.folder / f"open-{name}").touch()

    @property
    def ledger(self) -> list[list[str]]:
        path = self.folder / "ledger"
        # A line being written is visible up to the end of a memory page.
        whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
        return [line.split() for line in whole.splitlines()]

    def ledger_lines(self, word: str, name: str) -> list[list[str]]:
        """Return the ledger's lines of one word and task."""
        return [line[2:] for line in self.ledger if line[:2] == [word, name]]

    def wait_for(self, word: str, name: str, *, count: int = 1) -> list[list[str]]:
        until(
            lambda: len(self.ledger_lines(word, name)) >= count,
            f"{count} x {word} {name!r}",
            details=lambda: f"{self.ledger}\n" + "\n".join(run.log for run in self._runs),
        )
        return self.ledger_lines(word, name)

    def stats(self, *queues: str) -> list[QueueStats]:
        """Return the counts of the queue's three classes, and of its dead letters."""

        async def look() -> list[QueueStats]:
            async with self.app:
                broker = self.app.sessions.current().broker
                await broker.connect(timeout=PATIENCE)
                return await broker.stats(queues or self.queues)

        return asyncio.run(look())

    def wait_for_consumers(self, count: int) -> None:
        """Wait until that many workers consume: a new process may not have imported anything yet."""
        # Each poll is a connection.
        until(lambda: self.stats()[0].consumers == count, f"{count} consumers", every=0.2)

    @property
    def queues(self) -> tuple[str, ...]:
        return (*WorkQueue(DEFAULT_QUEUE).physical, dead_letter_queue(DEFAULT_QUEUE))

    def waiting(self) -> int:
        """Return the number of all messages at the broker."""
        return sum(entry.ready + (entry.unsettled or 0) + (entry.delayed or 0) for entry in self.stats())

    def close(self) -> None:
        """Stop the rest; processes left running fail the test."""
        self.app.close()
        left = [run for run in self._runs if run.exit_code is None]
        for run in left:
            run.signal(signal.SIGKILL)
            run.wait()
        for worker in self.lone_workers:
            worker.end(signal.SIGKILL)
        for run in self._runs:
            assert run._process.stdout is not None
            run._process.stdout.close()
        for folder in self.folder.glob("spawned-*"):
            folder.unlink()
        for line in self.ledger:
            if line[0] == "spawned":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line[2]), signal.SIGKILL)
        try:
            until(
                lambda: not _processes_in(self.folder), "no process of the test is left", details=self.abort_processes
            )
        finally:
            for pid in _processes_in(self.folder):
                os.kill(pid, signal.SIGKILL)

    def abort_processes(self) -> str:
        """Make each process in the folder write its stacks and end; return what the processes are, and all logs."""
        found = [_describe(pid) for pid in _processes_in(self.folder)]
        for pid in _processes_in(self.folder):
            os.kill(pid, signal.SIGABRT)
        with contextlib.suppress(TimeoutError):
            eventually(lambda: not _processes_in(self.folder), within=timedelta(seconds=5))
        return "\n".join([*found, *(log.read_text(errors="replace") for log in sorted(self.folder.glob("log-*")))])

    def _define(self) -> None:
        async def takes_name(name: str) -> None: ...

        async def takes_number(n: int) -> int:
            return n

        for task in ("gated", "threaded", "heavy", "stubborn", "stuck_thread", "reads", "spawns"):
            self.app.task(name=f"jobs.{task}")(takes_name)
        for task in ("quick", "nap"):
            self.app.task(name=f"jobs.{task}")(takes_number)


def until(
    condition: Callable[[], bool],
    what: str,
    *,
    within: float = PATIENCE,
    every: float = 0.02,
    details: Callable[[], str] = lambda: "",
) -> None:
    """Wait until `condition` holds."""
    try:
        eventually(condition, what, within=timedelta(seconds=within), every=timedelta(seconds=every))
    except TimeoutError as error:
        raise AssertionError(f"{error}\n{details()}") from error


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _processes_in(folder: Path) -> list[int]:
    """Return the processes that run in `folder`."""
    found: list[int] = []
    for process in _processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/cwd").readlink() == folder and is_alive(process):
                found.append(process)
    return found


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _describe(pid: int) -> str:
    """Return the process's parent, state, kernel function and command line."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        function = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return f"process {pid} has ended"
    command = _command(pid).replace(b"\0", b" ").decode(errors="replace")
    return f"process {pid} of {parent}, state {state}, in {function}: {command}"


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(pid: int, *, depth: int) -> list[int]:
    found: list[int] = []
    for process in _processes():
        with contextlib.suppress(OSError, IndexError):
            if int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found += [process, *(_descendants(process, depth=depth - 1) if depth > 1 else [])]
    return [process for process in found if is_alive(process)]
