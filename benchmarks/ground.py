"""The broker that all share, and what one run has to itself."""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import quote

from benchmarks.contenders import PEERS, Contender, Setup
from benchmarks.peers.tally import SLOTS, open_cells, total
from benchmarks.processes import cpu_seconds, end, resident_mb, tree
from benchmarks.provision import environment
from tests.servers.rabbitmq import RabbitMQ

__all__ = ["Ground", "Run", "RunFailed", "Worker"]

_STALL = 30.0
_LOOK = 0.002


class RunFailed(Exception):
    """A contender did not do its work; what it said stands in the message."""


class Ground:
    """One RabbitMQ node for the whole session."""

    def __init__(self, version: str | None) -> None:
        self._node = RabbitMQ(version)
        self._node.start()
        self.url = self._node.url
        self.version = self._node.version
        pid = re.search(r"\d+", self._node.ctl("eval", "os:getpid()."))
        assert pid is not None
        self._pid = int(pid[0])

    def cpu(self) -> float:
        """Processor seconds that the broker has used so far."""
        return cpu_seconds([self._pid])

    def clear(self) -> None:
        """Delete every queue but those of the delay ladder, which are nobody's work."""
        for queue in cast("list[dict[str, str]]", self._node.http("GET", "/api/queues/%2F")):
            if not queue["name"].startswith("taskmq."):
                self._node.http("DELETE", f"/api/queues/%2F/{quote(queue['name'], safe='')}")

    def close(self) -> None:
        self._node.stop()


class Run:
    """One run of one setup: its files, its environment, its worker."""

    def __init__(self, ground: Ground, contender: Contender, setup: Setup, *, kind: str, lateness: int = 0) -> None:
        self._ground = ground
        self._contender = contender
        self._setup = setup
        self._bin = environment(contender)
        self._folder = Path(tempfile.mkdtemp(prefix="taskmq-bench-"))
        self.counts = open_cells(str(self._folder / "counts"), SLOTS)
        self.lateness = open_cells(str(self._folder / "lateness"), max(lateness, 1))
        self.log = self._folder / "log"
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "BENCH_URL": ground.url,
            "BENCH_KIND": kind,
            "BENCH_TALLY": str(self._folder / "counts"),
            "BENCH_LATENESS": str(self._folder / "lateness"),
            "PYTHONPATH": os.pathsep.join([str(PEERS), str(PEERS.parents[1])])
            if not contender.requires
            else str(PEERS),
            **setup.env,
        }

    def produce(self, *words: str, env: Mapping[str, str] | None = None) -> dict[str, float]:
        """What the contender's producer prints."""
        with self.producing(*words, env=env) as process:
            out, _ = process.communicate(timeout=600)
        if process.returncode:
            raise RunFailed(
                f"{self._contender.name} {' '.join(words)}: {self.log.read_text(errors='replace')[-2000:]}"
            )
        return cast("dict[str, float]", json.loads(out.splitlines()[-1]))

    @contextlib.contextmanager
    def producing(self, *words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The contender's producer while it runs."""
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
        """The contender's worker processes while they run."""
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
        """Seconds that a process needs to import the contender's app, which has it import what it uses."""
        module = self._contender.script.removesuffix(".py")
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        command = [str(self._bin / "python"), "-c", code]
        outputs = [subprocess.run(command, check=True, capture_output=True, env=self._env).stdout for _ in range(2)]
        # The first one has written the bytecode.
        return float(outputs[-1])

    def done(self) -> int:
        """How many tasks have run."""
        return total(self.counts)

    def until(self, count: int, worker: "Worker") -> float:
        """The instant at which `count` tasks have run.

        Raises:
            RunFailed: nothing has moved for half a minute, or the worker has ended.
        """
        seen, moved = -1, time.perf_counter()
        while (now_done := self.done()) < count:
            now = time.perf_counter()
            if now_done > seen:
                seen, moved = now_done, now
            elif now - moved > _STALL or not worker.is_alive():
                said = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
                raise RunFailed(f"{self._contender.name} stopped at {now_done} of {count}: {said}")
            time.sleep(_LOOK)
        return time.perf_counter()


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
