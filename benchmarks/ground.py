"""Shared servers, and the files and processes of one run."""

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import cast
from urllib.parse import quote

from benchmarks.contender import PEERS, Contender, Setup
from benchmarks.counted import Counted
from benchmarks.failures import RunFailed
from benchmarks.peers.tally import SLOTS, open_cells
from benchmarks.processes import cpu_seconds, end, largest_mb, peak_mb, proportional_mb, resident_mb, tree
from benchmarks.provision import environment
from tests.servers import Redis, ServerError
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.waiting import eventually

_STALL = 30.0
_SENDS_WITHIN = 300.0
_POLL = 0.002


class Ground:
    """One RabbitMQ node for the whole session, and one Redis started on first use."""

    def __init__(self, version: str | None, *, advanced_config: str = "") -> None:
        self._node = RabbitMQ(version, advanced_config=advanced_config)
        self._node.start()
        self.url = self._node.url
        self.version = self._node.version
        pid = re.search(r"\d+", self._node.ctl("eval", "os:getpid()."))
        assert pid is not None
        self._pid = int(pid[0])
        # Custom options force a separate server, whatever the environment offers. Without persistence Redis is at its
        # fastest.
        self._redis = Redis(appendonly=False, options=("--maxmemory-policy", "noeviction"))
        self._has_redis = False

    def redis(self) -> str:
        """Start Redis if needed and return its URL.

        Raises:
            RunFailed: Redis is not installed.
        """
        if not self._has_redis:
            try:
                self._redis.start()
            except ServerError as error:
                raise RunFailed(str(error)) from error
            self._has_redis = True
        return self._redis.url

    def redis_bytes(self) -> int:
        """Return the memory that Redis uses for its data.

        Raises:
            RunFailed: Redis does not report it.
        """
        found = re.search(r"used_memory:(\d+)", str(self._redis.command("INFO", "memory")))
        if found is None:
            raise RunFailed("Redis does not report how much memory its data uses")
        return int(found[1])

    def redis_calls(self) -> dict[str, int]:
        """Return the number of calls of each command so far, except this one."""
        text = str(self._redis.command("INFO", "commandstats"))
        rows = re.findall(r"cmdstat_([^:]+):calls=(\d+)", text)
        return {name: int(calls) for name, calls in rows if name not in ("info", "select")}

    def cpu(self, kind: str) -> float:
        """Return the processor seconds that the broker of this kind of queue has used."""
        return cpu_seconds(self._pids(kind))

    def resident_mb(self, kind: str) -> float:
        """Return the resident memory of the broker of this kind of queue."""
        return resident_mb(self._pids(kind))

    def clear(self, kind: str) -> None:
        """Delete every queue except taskmq's delay queues, which hold no tasks of a contender."""
        if self._has_redis:
            self._redis.flush()
        if kind == "redis":
            return
        for queue in cast("list[dict[str, str]]", self._node.http("GET", "/api/queues/%2F")):
            if not queue["name"].startswith("taskmq."):
                self._node.http("DELETE", f"/api/queues/%2F/{quote(queue['name'], safe='')}")

    def waiting(self) -> dict[str, int]:
        """Wait for a queued message and return the message counts of the queues that are not empty."""
        # RabbitMQ counts the messages of quorum queues every five seconds.
        with contextlib.suppress(TimeoutError):
            return eventually(self._counts, "a message", within=timedelta(seconds=15))
        return {}

    def _counts(self) -> dict[str, int]:
        output = self._node.ctl("--quiet", "list_queues", "--no-table-headers", "name", "messages")
        rows = [line.rsplit(maxsplit=1) for line in output.splitlines() if line.strip()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and int(row[1])}

    def close(self) -> None:
        self._redis.close()
        self._node.close()

    def _pids(self, kind: str) -> list[int]:
        return self._redis.pids() if kind == "redis" else [self._pid]


class Run:
    """One run of one setup: its files, its environment, its worker."""

    def __init__(
        self,
        ground: Ground,
        contender: Contender,
        setup: Setup,
        *,
        kind: str,
        lateness: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._contender = contender
        self._setup = setup
        self._bin = environment(contender)
        self._folder = Path(tempfile.mkdtemp(prefix="taskmq-bench-"))
        self._counted = Counted(open_cells(str(self._folder / "counts"), SLOTS), time.perf_counter)
        self.lateness = open_cells(str(self._folder / "lateness"), max(lateness, 1))
        self.log = self._folder / "log"
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            # Otherwise this checkout would be compiled at each start, and the peers would not.
            "PYTHONDONTWRITEBYTECODE": "",
            "BENCH_URL": ground.url,
            "BENCH_KIND": kind,
            "BENCH_TALLY": str(self._folder / "counts"),
            "BENCH_LATENESS": str(self._folder / "lateness"),
            "PYTHONPATH": os.pathsep.join([str(PEERS), str(PEERS.parents[1])])
            if not contender.requires
            else str(PEERS),
            **({"BENCH_REDIS": ground.redis()} if kind == "redis" else {}),
            **setup.env,
            **(env or {}),
        }

    def close(self) -> None:
        """Remove the run's files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def produce(self, *words: str, env: Mapping[str, str] | None = None) -> dict[str, float]:
        """Run the contender's producer and return the figures that it prints.

        Raises:
            RunFailed: the producer failed or did not end within five minutes.
        """
        with self.producing(*words, env=env) as process:
            return self.answer_of(process)

    def answer_of(self, process: subprocess.Popen[bytes]) -> dict[str, float]:
        """Wait for a producer and return the figures that it prints.

        Raises:
            RunFailed: the producer failed or did not end within five minutes.
        """
        try:
            out, _ = process.communicate(timeout=_SENDS_WITHIN)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"{self._contender.name}: still sending after {_SENDS_WITHIN:.0f} s") from error
        lines = out.splitlines()
        if process.returncode or not lines:
            raise RunFailed(f"{self._contender.name} ended with {process.returncode}: {self._log_tail()}")
        return cast("dict[str, float]", json.loads(lines[-1]))

    @contextlib.contextmanager
    def producing(self, *words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Start the contender's producer, and stop it at the end of the block."""
        command = [str(self._bin / "python"), str(PEERS / self._contender.script), *words]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env={**self._env, **(env or {})}, cwd=PEERS
            )
        try:
            yield process
        finally:
            end(process)

    @contextlib.contextmanager
    def working(self) -> Iterator["Worker"]:
        """Start the contender's worker processes, and stop them at the end of the block."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with self.log.open("ab") as log:
                processes += [
                    subprocess.Popen(self._setup.argv(self._bin), stdout=log, stderr=log, env=self._env, cwd=PEERS)
                    for _ in range(self._setup.instances)
                ]
            yield Worker(self, processes)
        finally:
            for process in processes:
                end(process)

    def importing(self) -> float:
        """Return the seconds that a process needs to import the contender's app and its dependencies."""
        module = self._contender.script.removesuffix(".py")
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        command = [str(self._bin / "python"), "-c", code]
        # The first run writes the bytecode.
        took = [self._measure(command) for _ in range(6)]
        return statistics.median(took[1:])

    def _measure(self, command: list[str]) -> float:
        done = subprocess.run(command, check=False, capture_output=True, env=self._env)
        if done.returncode:
            raise RunFailed(f"{self._contender.name}: {done.stderr.decode(errors='replace')[-2000:]}")
        return float(done.stdout)

    def count_finished(self) -> int:
        """Return the number of finished tasks."""
        return self._counted.total()

    def until(self, count: int, worker: "Worker") -> float:
        """Wait until `count` tasks have run and return that instant.

        Raises:
            RunFailed: no task ended for half a minute, or the worker exited.
        """
        seen, moved = -1, time.perf_counter()
        while (now_done := self.count_finished()) < count:
            now = time.perf_counter()
            if now_done > seen:
                seen, moved = now_done, now
            elif now - moved > _STALL or not worker.is_alive():
                state = "is stuck" if worker.is_alive() else "exited"
                raise RunFailed(f"{self._contender.name} {state} at {now_done} of {count}: {self._log_tail()}")
            time.sleep(_POLL)
        return time.perf_counter()

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


class Worker:
    """The processes of one setup."""

    def __init__(self, run: Run, processes: list[subprocess.Popen[bytes]]) -> None:
        self._run = run
        self._processes = processes

    def is_alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def pids(self) -> set[int]:
        return tree(process.pid for process in self._processes)

    def cpu(self) -> float:
        return cpu_seconds(self.pids())

    def resident_mb(self) -> float:
        return resident_mb(self.pids())

    def largest_mb(self) -> float:
        return largest_mb(self.pids())

    def proportional_mb(self) -> float:
        return proportional_mb(self.pids())

    def peak_mb(self) -> float:
        return peak_mb(self.pids())
