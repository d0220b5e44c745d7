"""Rows of the benchmark, and the command line."""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.job_store.figures import Figures, Rows, percentile, spread, text_of
from benchmarks.job_store.loading import fill_history, large_stage
from benchmarks.job_store.stage import DURABLE, Servers, Stage
from benchmarks.processes import end, resident_mb, tree
from benchmarks.server.clients import WebClient, closed_loop, get, post
from benchmarks.server.pages import add_history, pages
from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from taskmq.model.identity import EVERYWHERE, Membership, Role
from tests.servers.ports import PortLease

_CLIENTS: Final = (1, 16, 64)
_TURNS: Final = 8
_STREAMS: Final = 50
_PER_USER: Final = 10
_IDLE: Final = 1_000
_MARKS: Final = 4
_PARTS: Final = ("posts", "gets", "lists", "pages", "streams", "idle", "memory", "accepted")
_FILES: Final = 8_192
_PATIENCE: Final = 60.0
_JOBS: Final = "/api/v1/jobs"
_FILTERS: Final = (
    "", "?status=failed", "?job_type=task-1", "?filter=tenant:t3", "?filter=tenant:t3+status:failed",
    "?filter=created:>-24h",
)  # fmt: skip
_ECHO: Final = """\
import sys
from typing import Any
import msgspec, uvicorn
from litestar import Litestar, post

class Body(msgspec.Struct):
    job_type: str
    job_id: str
    payload: dict[str, Any]

@post("/api/v1/jobs")
async def echo(data: Body) -> dict[str, Any]:
    return {"status": "submitted", "job_id": data.job_id, "state": "queued", "version": 1, "is_new": True}

uvicorn.run(Litestar([echo]), port=int(sys.argv[1]), http="h11", access_log=False, log_level="warning")
"""


class _Bench:
    """State shared by the rows.

    Attributes:
        found: the figures of each row.
    """

    def __init__(self, stage: Stage, options: argparse.Namespace, tokens: Sequence[str]) -> None:
        self.found: dict[str, list[Figures]] = {}
        self._stage = stage
        self._options = options
        self._tokens = tokens
        self._names = 0
        # A kept database has the jobs of earlier runs.
        self._prefix = secrets.token_hex(4)

    async def run(self) -> None:
        only: Sequence[str] = self._options.only
        with PortLease(2) as lease:
            port, echo = lease.ports
            server = self._stage.start("server", "--port", str(port), "--rate", "0")
            await _until_open(port)
            # The first requests open the server's connections to the store.
            await closed_loop(port, 16, 1.0, self._job)
            if "posts" in only or "gets" in only:
                with _echo(echo):
                    await _until_open(echo)
                    if "posts" in only:
                        await self._posts(port, echo)
                    if "gets" in only:
                        await self._gets(port, echo)
            if "lists" in only:
                await self._lists(port)
            if "pages" in only:
                await self._pages(port)
            if "streams" in only:
                await self._streams(port, server.pid)
            if "idle" in only:
                await self._idle(port, server.pid)
            if "memory" in only:
                await self._memory(port, server.pid)
            if "accepted" in only:
                self._stage.start_both()
                await self._stage.warm()
                await self._accepted(port)

    async def _posts(self, port: int, echo: int) -> None:
        seconds = self._options.seconds
        for clients in _CLIENTS:
            plain, of_echo = await closed_loop(echo, clients, seconds, self._job)
            submitted, of_store = await self._submits(clients, seconds)
            rate, taken = await closed_loop(port, clients, seconds, self._job)
            self._keep(
                f"post, {clients} clients",
                {
                    "requests/s": rate,
                    **spread(taken),
                    "echo/s": plain,
                    "echo p50 ms": percentile(of_echo, 0.5) * 1e3,
                    "store/s": submitted,
                    "store p50 ms": percentile(of_store, 0.5) * 1e3,
                    "rate : echo": rate / plain,
                    "p50 : store + echo": percentile(taken, 0.5)
                    / (percentile(of_store, 0.5) + percentile(of_echo, 0.5)),
                },
            )

    async def _submits(self, callers: int, seconds: float) -> tuple[float, Sequence[float]]:
        taken: list[float] = []
        until = time.perf_counter() + seconds

        async def call() -> None:
            while (began := time.perf_counter()) < until:
                await self._stage.app.jobs.asubmit("nothing", 1)
                taken.append(time.perf_counter() - began)

        await asyncio.gather(*(call() for _ in range(callers)))
        return len(taken) / seconds, taken

    async def _gets(self, port: int, echo: int) -> None:
        client = await WebClient.opened(port)
        name = (await client.ask(self._job()))["job_id"]
        await client.aclose()
        request = get(f"{_JOBS}/{name}", self._tokens[0])
        for clients in _CLIENTS[1:]:
            rates: list[float] = []
            plain: list[float] = []
            taken: list[float] = []
            # In turns with the echo server: on a busy machine only ratios are meaningful.
            for _ in range(_TURNS):
                seconds = self._options.seconds / _TURNS * 2
                plain.append((await closed_loop(echo, clients, seconds, self._job))[0])
                rate, some = await closed_loop(port, clients, seconds, lambda *_: request)
                rates.append(rate)
                taken.extend(some)
            ratios = [rate / of_echo for rate, of_echo in zip(rates, plain, strict=True)]
            self._keep(
                f"get, {clients} clients",
                {
                    "requests/s": statistics.median(rates),
                    **spread(taken),
                    "echo/s": statistics.median(plain),
                    "rate : echo": statistics.median(ratios),
                    "rate : echo, least": min(ratios),
                    "rate : echo, most": max(ratios),
                },
            )

    async def _lists(self, port: int) -> None:
        worst = 0.0
        figures: Figures = {}
        for asked in _FILTERS:
            request = get(f"{_JOBS}{asked or '?limit=50'}", self._tokens[0])
            _, taken = await closed_loop(port, 1, self._options.seconds / 2, lambda *_, said=request: said)
            worst = max(worst, percentile(taken, 0.95))
            figures[f"p95 ms {asked or 'all'}"] = percentile(taken, 0.95) * 1e3
        self._keep(f"list, {self._options.rows:,} rows", {"worst p95 ms": worst * 1e3, **figures})

    async def _pages(self, port: int) -> None:
        await add_history(self._stage, self._stage.app)
        figures: Figures = {}
        for name, path in pages().items():
            request = get(path, self._tokens[0])
            _, taken = await closed_loop(port, 1, self._options.seconds / 2, lambda *_, said=request: said)
            figures[f"p95 ms {name}"] = percentile(taken, 0.95) * 1e3
        self._keep(f"pages, {self._options.rows:,} rows", {"worst p95 ms": max(figures.values()), **figures})

    async def _streams(self, port: int, pid: int) -> None:
        before = resident_mb(tree([pid]))
        opened = [await WebClient.opened(port) for _ in range(_STREAMS)]
        for number, client in enumerate(opened):
            await client.begin(get("/api/v1/events", self._tokens[number // _PER_USER]))
        rests = [asyncio.create_task(client.drop()) for client in opened]
        rate, taken = await closed_loop(port, 16, self._options.seconds, self._job)
        grown = resident_mb(tree([pid])) - before
        self._keep(f"post, 16 clients, {_STREAMS} streams", {"requests/s": rate, **spread(taken), "MB more": grown})
        for rest in rests:
            rest.cancel()
        await asyncio.wait(rests)
        for client in opened:
            await client.aclose()

    async def _idle(self, port: int, pid: int) -> None:
        before = resident_mb(tree([pid]))
        opened = [await WebClient.opened(port) for _ in range(_IDLE)]
        for client in opened:
            await client.ask(get("/api/v1/health/live", ""))
        rate, taken = await closed_loop(port, 16, self._options.seconds, self._job)
        grown = resident_mb(tree([pid])) - before
        self._keep(f"post, 16 clients, {_IDLE:,} idle", {"requests/s": rate, **spread(taken), "MB more": grown})
        for client in opened:
            await client.aclose()

    async def _memory(self, port: int, pid: int) -> None:
        total, clients = self._options.requests, self._options.memory_clients
        marks = [resident_mb(tree([pid]))]
        left = iter(range(total))

        async def ask(client: WebClient) -> None:
            for number in left:
                await client.ask(self._job() if number % 2 else get(f"{_JOBS}?limit=5", self._tokens[0]))
                if number >= total * len(marks) // _MARKS - 1:
                    marks.append(resident_mb(tree([pid])))
                    print(f"  {number + 1:,} requests: {marks[-1]:.1f} MB", flush=True)

        opened = [await WebClient.opened(port) for _ in range(clients)]
        await asyncio.gather(*map(ask, opened))
        for client in opened:
            await client.aclose()
        self._keep(
            f"memory, {total:,} requests", {f"MB after {number} quarters": mark for number, mark in enumerate(marks)}
        )

    async def _accepted(self, port: int) -> None:
        client = await WebClient.opened(port)
        late: list[float] = []
        for _ in range(self._options.jobs):
            skip, sent = self._stage.written(), time.time_ns()
            await client.ask(post(_JOBS, self._tokens[0], {"job_type": "stamp", "args": [sent]}))
            accepted = time.time_ns()
            async with asyncio.timeout(_PATIENCE):
                while not (found := self._stage.starts(skip=skip)):
                    await asyncio.sleep(0.002)
            # The job may start before its submitter gets the answer.
            late.append(max(found[0].at - accepted, 0) / 1e9)
        await client.aclose()
        self._keep("accepted to started, idle", spread(late))

    def _keep(self, row: str, figures: Figures) -> None:
        self.found[row] = [figures]
        print(text_of({row: self.found[row]}), flush=True)

    def _job(self, *_: int) -> bytes:
        self._names += 1
        body = {
            "job_type": "nothing",
            "job_id": f"bench-{self._prefix}-{self._names}",
            "payload": {"number": self._names},
        }
        return post(_JOBS, self._tokens[0], body)


async def _until_open(port: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                client = await WebClient.opened(port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                await client.aclose()
                return


@contextlib.contextmanager
def _echo(port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _ECHO, str(port)])
    try:
        yield
    finally:
        end(process)


async def _tokens(app: TaskMQ) -> list[str]:
    """Create API tokens of enough administrators for the streams."""
    administration = IdentityAdministration(
        app.sessions.store().identity, hasher=PasswordHasher(time_cost=1, memory_cost=64)
    )
    by, found = Actor(user="bench"), list[str]()
    run = secrets.token_hex(4)
    for number in range(_STREAMS // _PER_USER):
        roles = (Membership(EVERYWHERE, Role.ADMIN),)
        user = await administration.add_user(f"user-{run}-{number}", None, by=by, memberships=roles)
        found.append((await administration.add_token(user.id, "bench", by=by)).secret)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the figures."""
    options = _options(arguments)
    # On disk, so that commits wait for the disk as in production.
    os.environ.setdefault("TASKMQ_TEST_ROOM", tempfile.gettempdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_FILES, hard)), hard))
    with Servers.opened(DURABLE if options.durable else {}) as servers, _stage(servers, options.rows) as stage:
        found = asyncio.run(_measured(stage, options))
    if options.results is not None:
        options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _stage(servers: Servers, rows: int) -> contextlib.AbstractContextManager[Stage]:
    return large_stage(servers, "server", rows=rows, fill=fill_history) if rows else Stage.opened(servers)


async def _measured(stage: Stage, options: argparse.Namespace) -> Rows:
    async with stage.app:
        bench = _Bench(stage, options, await _tokens(stage.app))
        await bench.run()
        return bench.found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds to measure each row")
    parser.add_argument("--rows", type=int, default=1_000_000, help="ended jobs in the database for lists and pages")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of the row memory")
    parser.add_argument("--memory-clients", type=int, default=1, help="clients of the row memory")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS, help="measure only these rows")
    parser.add_argument("--jobs", type=int, default=200, help="jobs of the row accepted, one by one")
    parser.add_argument(
        "--durable", action=argparse.BooleanOptionalAction, default=True, help="run PostgreSQL with fsync"
    )
    parser.add_argument("--results", type=Path, default=None, help="JSON file of the results")
    return parser.parse_args(arguments)
