"""Test bed of the rows: PostgreSQL, RabbitMQ, schedulers and workers, each in separate processes."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.job_store.figures import Figures
from benchmarks.processes import cpu_seconds, end, tree
from taskmq import TaskMQ, WorkQueue
from tests.servers import PostgreSQL, RabbitMQ

QUEUE: Final = "work"
_PATIENCE: Final = 300.0
_SHARES: Final = """
select count(*) from taskmq.lease where key like 'partition:_' and holder is not null group by holder"""
DURABLE: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
}
"""Settings of production: committed data survives a crash of the machine."""
_APP: Final = """\
import os
import time

from taskmq import TaskMQ

app = TaskMQ(name="bench")
_starts = os.open("starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="nothing", queue="work", retry=None)
async def nothing(number: int) -> None: ...


@app.task(name="stamp", queue="work", retry=None)
async def stamp(sent: int) -> None:
    os.write(_starts, b"%d %d\\n" % (sent, time.time_ns()))
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A job's start.

    Attributes:
        sent: the reference time that the job was submitted with, in ns since the epoch.
        at: the time of its start, in ns since the epoch.
    """

    sent: int
    at: int

    @property
    def late(self) -> float:
        """Lateness in seconds."""
        return (self.at - self.sent) / 1e9


def starts_in(text: bytes) -> list[Start]:
    """Return the starts in the text of a file of starts, in their order; the last line may be half read."""
    pairs = (line.split() for line in text[: text.rfind(b"\n") + 1].splitlines())
    return sorted((Start(int(sent), int(at)) for sent, at in pairs), key=lambda start: start.at)


@dataclass(frozen=True, slots=True)
class Servers:
    """The two servers that all rows share."""

    postgres: PostgreSQL
    rabbitmq: RabbitMQ

    @classmethod
    @contextlib.contextmanager
    def opened(cls, settings: "dict[str, str]") -> "Generator[Servers]":
        with PostgreSQL(settings) as postgres, RabbitMQ() as rabbitmq:
            yield cls(postgres, rabbitmq)

    def pids(self) -> dict[str, int]:
        """The root process of each server."""
        folder = self.postgres.sql("show data_directory")
        postmaster = (Path(folder) / "postmaster.pid").read_text(encoding="ascii").split()[0]
        node = re.findall(r"\d+", self.rabbitmq.evaluate("os:getpid()."))[0]
        return {"PostgreSQL": int(postmaster), "RabbitMQ": int(node)}


@dataclass
class Stage:
    """A database and a virtual host with their taskmq processes, and the sender's app.

    Attributes:
        store: the database's URL.
        folder: the folder that the tasks write to.
        pids: the root process of each part.
    """

    servers: Servers
    store: str
    app: TaskMQ
    folder: Path
    pids: dict[str, int]
    _environment: dict[str, str]
    _processes: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, servers: Servers, *, store: str | None = None) -> "Generator[Stage]":
        """Create tables, a virtual host and an app, without starting a scheduler or worker.

        Args:
            store: a database to use and keep; default: a new one, dropped at the end.
        """
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskmq-bench-")))
            (folder / "bench.py").write_text(_APP, encoding="utf-8")
            (folder / "starts").touch()
            if store is None:
                store = servers.postgres.create_database()
                stack.callback(servers.postgres.drop_database, store)
            broker = servers.rabbitmq.create_vhost()
            settings = {"TASKMQ_URL": broker, "TASKMQ_STORE": store, "TASKMQ_APP": "bench:app"}
            app = TaskMQ(broker, store=store, name="sender", queues=[WorkQueue("line", ordered=4)])
            for task, queue in (
                ("nothing", QUEUE),
                ("stamp", QUEUE),
                ("talk", QUEUE),
                ("steps", QUEUE),
                ("alone", "alone"),
            ):
                app.task(name=task, queue=queue, retry=None)(_elsewhere)
            stage = cls(servers, store, app, folder, servers.pids(), {**os.environ, **settings})
            stage.command("store", "upgrade")
            stack.enter_context(stage._processes)
            yield stage

    def command(self, *words: str) -> None:
        """Run a taskmq command and wait for its end."""
        subprocess.run(self._argv(words), cwd=self.folder, env=self._environment, check=True, capture_output=True)

    def start(self, role: str, *options: str, name: str = "", errors: int | None = None) -> subprocess.Popen[bytes]:
        """Start a taskmq process that ends with the stage.

        Args:
            errors: file for its standard error; default: the benchmark's standard error.
        """
        argv = self._argv((role, *options))
        process = subprocess.Popen(argv, cwd=self.folder, env=self._environment, stderr=errors)
        self._processes.callback(_end, process)
        self.pids[name or role] = process.pid
        return process

    def start_both(self) -> None:
        """Start one scheduler and one worker process."""
        self.start("scheduler")
        self.start("worker", "--processes", "1", "--concurrency", "100")

    def cpu(self) -> Figures:
        """Return the processor seconds that each part has used so far."""
        used = {name: cpu_seconds(tree([pid])) for name, pid in self.pids.items()}
        return {**used, "sender": time.process_time()}

    def wal(self) -> int:
        """Return the bytes that PostgreSQL has written to its write-ahead log so far."""
        return int(self.sql("select pg_current_wal_lsn() - '0/0'"))

    def starts(self, *, skip: int = 0) -> list[Start]:
        """Return the starts of `stamp` jobs recorded from this byte of their file on, in their order."""
        return starts_in((self.folder / "starts").read_bytes()[skip:])

    def started(self, *, skip: int = 0) -> int:
        """Return the number of these starts, which costs little to ask for often."""
        return (self.folder / "starts").read_bytes().count(b"\n", skip)

    def written(self) -> int:
        """Return the size of the file of starts in bytes."""
        return (self.folder / "starts").stat().st_size

    async def warm(self) -> None:
        """Run one job from submission to history."""
        await self.until_ended([(await self.app.jobs.asubmit("nothing", 0)).id])

    async def until_ended(self, job_ids: Sequence[str]) -> None:
        """Wait until all these jobs are in the history."""
        async with asyncio.timeout(_PATIENCE):
            for job_id in reversed(job_ids):
                while not (await self.app.jobs.aget(job_id)).state.is_final:
                    await asyncio.sleep(0.01)

    async def until_empty(self) -> None:
        """Wait until no unfinished job is left."""
        async with asyncio.timeout(_PATIENCE):
            while self.sql("select exists (select from taskmq.job)") == "t":
                await asyncio.sleep(0.02)

    async def until_shared(self) -> None:
        """Wait until two schedulers hold four partitions each."""
        async with asyncio.timeout(_PATIENCE):
            while self.sql(_SHARES).split() != ["4", "4"]:
                await asyncio.sleep(0.1)

    def sql(self, statement: str) -> str:
        """Run a statement with `psql` in the store's database and return its output."""
        return self.servers.postgres.sql(statement, url=self.store)

    def _argv(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "taskmq", "-q", *words]


def us_a_job(before: Figures, after: Figures, jobs: int) -> Figures:
    """Return each part's processor time per job."""
    parts = {f"us a job: {name}": (after[name] - before[name]) / jobs * 1e6 for name in after}
    return {"us a job": sum(parts.values()), **parts}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # A stopped process cannot handle SIGTERM.
        process.send_signal(signal.SIGCONT)
    end(process)


def _elsewhere(number: int) -> None:
    raise AssertionError(f"{number}: only the worker runs this task")
