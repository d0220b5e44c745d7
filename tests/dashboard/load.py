"""Load of open dashboards on the server, while nothing happens and while much does. By hand, alone:

.venv/bin/python -m tests.dashboard.load

A browser records the requests of one dashboard at the overview; the given number of clients then repeats them at the
same times, each with its own stream of events. The result is the additional fraction of a core that the server needs.
"""

import argparse
import asyncio
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from taskmq.events.stream import as_broadcasting
from taskmq.model.telemetry.events import JobEvent, encode_batch, job_topic
from tests.dashboard.kit import Served, browsing, serving, watching

_JOBS: Final = 500
_BATCH: Final = 0.05
# Until a client that has read once waits for the next digest.
_SETTLED: Final = 35.0
# A server that has not started, or not ended, by then never will.
_PATIENCE: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class _Asked(NamedTuple):
    """A request of a dashboard, and its time in seconds after the start."""

    after: float
    path: str


class _Cost(NamedTuple):
    """The load of a server: fraction of a core, and number of answers."""

    cpu: float
    answers: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dashboards", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which each figure is measured")
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 500], help="events of jobs a second")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        _serve(options.serve)
        return
    for rate in options.rates:
        with _server(rate) as (url, pid):
            asked = _asked_by_one(url, options.seconds, among=options.dashboards)
            without, many = (
                asyncio.run(_cost(url, pid, asked, count, options.seconds)) for count in (0, options.dashboards)
            )
        asks = Counter(urlsplit(one.path).path.rpartition("/api/v1/")[2] for one in asked)
        each = len(asked) / options.seconds
        print(f"{rate} events a second: one dashboard asks {each:.2f} times a second: {dict(asks)}")
        print(f"    without: {without.cpu:.1%} of a core")
        rate_of_answers = many.answers / options.seconds
        print(f"    with {options.dashboards}: {many.cpu:.1%} of a core, {rate_of_answers:.1f} answers a second")


@contextmanager
def _server(rate: int) -> Iterator[tuple[str, int]]:
    """Start a server process; yield its address and process, and kill it if it does not end."""
    command = [sys.executable, "-m", "tests.dashboard.load", "--serve", str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            yield _first_line(process), process.pid
            process.stdin.close()
            process.wait(_PATIENCE)
        finally:
            process.kill()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(_PATIENCE), "the server does not start"
    line = process.stdout.readline().strip()
    assert line, "the server has ended"
    return line


def _serve(rate: int) -> None:
    """Serve until standard input ends, and publish events of that many jobs a second."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), development=True, streams=1_000) as served:
        for start in range(0, _JOBS, 100):
            served.submit(*({"job_type": "report", "job_id": f"job-{start + n}"} for n in range(100)))
        if rate:
            served.start(_tell(served, max(round(rate * _BATCH), 1)))
        print(served.url, flush=True)
        sys.stdin.read()


async def _tell(served: Served, together: int) -> None:
    broker = as_broadcasting(served.app.sessions.current().broker)
    number = 0
    while True:
        events = [
            JobEvent(event="succeeded", number=number + n, at=time.time_ns() // 1_000_000, job_id=f"j{number + n}",
                     task="report", queue="reports", seconds=0.1, waited=0.1)
            for n in range(together)
        ]  # fmt: skip
        number += together
        broker.announce(job_topic("succeeded", "reports"), encode_batch("w1", events, dropped=0))
        await asyncio.sleep(_BATCH)


def _asked_by_one(url: str, seconds: float, *, among: int) -> list[_Asked]:
    """Record the requests of a complete dashboard at the overview: more open dashboards make them less frequent."""
    found: list[_Asked] = []
    with _streams(url, among - 1), browsing() as browser, watching(browser, url) as eyes:
        eyes.open()
        # When the stream opens, everything is read once more.
        eyes.page.wait_for_timeout(_SETTLED * 1_000)
        began = time.monotonic()
        eyes.page.on("request", lambda request: found.append(_Asked(time.monotonic() - began, request.url)))
        eyes.page.wait_for_timeout(seconds * 1_000)
    return [one for one in found if "/api/v1/" in one.path and "/events" not in one.path]


@contextmanager
def _streams(url: str, count: int) -> Iterator[None]:
    """Open that many streams of other clients."""
    began, over = threading.Event(), threading.Event()

    async def hold() -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(httpx.AsyncClient(timeout=_PATIENCE)) for _ in range(count)]
            opened = [asyncio.Event() for _ in clients]
            tasks = [
                asyncio.create_task(_follow(client, url, one)) for client, one in zip(clients, opened, strict=True)
            ]
            await _all_open(opened)
            began.set()
            await asyncio.to_thread(over.wait)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
    thread.start()
    try:
        assert began.wait(_PATIENCE), "the streams do not open"
        yield
    finally:
        over.set()
        thread.join(_PATIENCE)


async def _cost(url: str, pid: int, asked: list[_Asked], count: int, seconds: float) -> _Cost:
    """Measure the server's load with that many open dashboards."""
    answers: Counter[int] = Counter()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(httpx.AsyncClient(timeout=_PATIENCE)) for _ in range(count)]
        opened = [asyncio.Event() for _ in clients]
        tasks = [
            asyncio.create_task(_follow(client, url, is_open))
            for client, is_open in zip(clients, opened, strict=True)
        ]
        await _all_open(opened)
        before, began = _processor_seconds(pid), time.monotonic()
        tasks += [
            # Not all at the same instant.
            asyncio.create_task(_replay(client, asked, seconds * number / max(count, 1), answers))
            for number, client in enumerate(clients)
        ]
        await asyncio.sleep(seconds)
        used = (_processor_seconds(pid) - before) / (time.monotonic() - began)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(answers) <= {200}, answers
    return _Cost(used, answers.total())


async def _all_open(opened: Sequence[asyncio.Event]) -> None:
    async with asyncio.timeout(_PATIENCE):
        for one in opened:
            await one.wait()


async def _follow(client: httpx.AsyncClient, url: str, is_open: asyncio.Event) -> None:
    async with client.stream("GET", f"{url}/api/v1/events", params={"digest": "true"}) as answer:
        assert answer.status_code == 200
        is_open.set()
        async for _ in answer.aiter_bytes():
            pass


async def _replay(client: httpx.AsyncClient, asked: list[_Asked], shift: float, answers: Counter[int]) -> None:
    """Repeat the requests of one, from a random moment on, and then from the beginning."""
    began = time.monotonic()
    span = max(one.after for one in asked) + 0.1 if asked else 1.0
    for one in sorted(asked, key=lambda one: (one.after - shift) % span):
        await asyncio.sleep(max((one.after - shift) % span - (time.monotonic() - began), 0))
        answers[(await client.get(one.path)).status_code] += 1


def _processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main()
