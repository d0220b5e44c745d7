"""The server that limited tasks call, and their side of it: what a limit looks like from outside.

A run holds a connection from its first line to its last, and ends after the server has confirmed its end.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count, pairwise
from typing import Any, Final

from taskmq.contracts.jobs import partition_of

_LATE: Final = 0.02


def find_queues() -> list[str]:
    """Return three queues in three partitions."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(partition_of(f"q{number}"), f"q{number}")
        if len(found) == 3:
            return list(found.values())
    raise AssertionError


def most_in_a_second(starts: Sequence[float]) -> int:
    """Return the most starts in any second."""
    times = sorted(starts)
    return max((sum(at <= other < at + 1 for other in times[place:]) for place, at in enumerate(times)), default=0)


class HeldUp:
    """Watches for moments in which a busy machine holds up this process."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._last = 0.0

    def watch(self) -> None:
        """Begin, unless it does."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    def was_held_up(self, at: float) -> bool:
        """Whether the process was held up around an instant of the monotonic clock, or in the 0.2 s before."""
        return self._last > at - 0.2

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            if time.monotonic() - before > _LATE:
                self._last = time.monotonic()


class CalledServer:
    """A server that notes each call and each run.

    Attributes:
        calls: number of calls of each caller.
        starts: instants of the calls' starts by the machine's monotonic clock. A busy machine may hold up a start
            after its worker has compared the clocks: such a start is only in `all_starts`.
        runs: begin, end and number of each run of a key; begins and ends are numbered in their order.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.starts: list[float] = []
        self.all_starts: list[float] = []
        self.runs: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self._order = count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of `call` or `hold_call`."""
        if not (line := await reader.readline()):
            # The worker was killed.
            writer.close()
            return
        told: dict[str, Any] = json.loads(line)
        if "key" in told:
            began = next(self._order)
            await reader.readline()
            self.runs[told["key"]].append((began, next(self._order), told["number"]))
        else:
            self.calls[told["caller"]] += 1
            self.all_starts.append(told["began"])
            if not told["is_held_up"]:
                self.starts.append(told["began"])
        writer.write(b"\n")
        writer.close()
        await writer.wait_closed()

    def overlaps(self, key: str) -> list[tuple[int, int]]:
        """Return the numbers of each two runs of a key that overlapped."""
        return [(one[2], other[2]) for one, other in pairwise(sorted(self.runs[key])) if one[1] > other[0]]

    def order(self, key: str) -> list[int]:
        """Return the numbers of a key's runs in the order of their first begins."""
        return list(dict.fromkeys(number for _, _, number in sorted(self.runs[key])))


async def call(port: int, **told: Any) -> None:
    """Tell the server of one call."""
    reader, writer = await _connect(port, told)
    await reader.readline()
    writer.close()


@asynccontextmanager
async def hold_call(port: int, **told: Any) -> AsyncGenerator[None]:
    """Hold a connection for the length of a run of a key."""
    reader, writer = await _connect(port, told)
    yield
    writer.write(b"\n")
    await reader.readline()
    writer.close()


async def _connect(port: int, told: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps(told).encode() + b"\n")
    return reader, writer
