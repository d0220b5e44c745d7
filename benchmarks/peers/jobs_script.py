"""Command line of the job store's peers. Uses only the standard library.

    python PEER.py setup|work
    python PEER.py one|bulk|paced --count N

`one`, `bulk` and `paced` submit jobs and print one JSON line; `work` runs jobs until it is stopped. `$BENCH_DATABASE`
names the database. Every task appends its submission time and its start time to `$BENCH_STARTS`.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any

DATABASE = os.environ.get("BENCH_DATABASE", "")
_PACE = 200.0
_CHUNK = 1000
_starts: list[int] = []


def started(sent: int) -> None:
    """Record that a task submitted at `sent` (ns since the epoch) starts now."""
    if not _starts:
        _starts.append(os.open(os.environ["BENCH_STARTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    os.write(_starts[0], b"%d %d\n" % (sent, time.time_ns()))


class Peer:
    """A library; `around` connects it."""

    async def setup(self) -> None:
        """Create the library's tables."""

    async def around(self, work: Callable[[], Any]) -> None:
        """Run the work with an open connection."""
        await work()

    async def one(self, sent: int) -> None:
        raise NotImplementedError

    async def many(self, sent: list[int]) -> None:
        raise NotImplementedError

    async def work(self) -> None:
        raise NotImplementedError


def answer(peer: Peer) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["setup", "work", "one", "bulk", "paced"])
    parser.add_argument("--count", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(_run(peer, arguments.command, arguments.count))


async def _run(peer: Peer, command: str, count: int) -> None:
    if command == "setup":
        await peer.around(peer.setup)
        return
    if command == "work":
        await peer.work()
        return
    figures = {}

    async def work() -> None:
        began, used = time.perf_counter(), time.process_time()
        if command == "bulk":
            for first in range(0, count, _CHUNK):
                await peer.many([time.time_ns()] * min(_CHUNK, count - first))
        for number in range(count if command != "bulk" else 0):
            if command == "paced":
                await asyncio.sleep(max(began + number / _PACE - time.perf_counter(), 0))
            await peer.one(time.time_ns())
        figures["seconds"] = time.perf_counter() - began
        figures["cpu"] = time.process_time() - used

    await peer.around(work)
    print(json.dumps(figures))
