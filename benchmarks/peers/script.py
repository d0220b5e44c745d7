"""Command line of every contender's producer. Uses only the standard library.

    python PEER.py enqueue --mode one|concurrent|bulk --count N [--queue Q]
    python PEER.py stamps --rate R --count N [--delay SECONDS] [--after N]
    python PEER.py pauses --milliseconds M --count N
    python PEER.py fan --count N

Each command prints one JSON line: the number of tasks, the seconds, and this process's processor time.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tally import counted


class Producer:
    """A contender's producer; each method sends the tasks and returns once the broker has all of them.

    Attributes:
        modes: the supported ones of `one`, `concurrent` and `bulk`, by name.
    """

    modes: dict[str, Callable[[int], Any]]

    def __init__(self) -> None:
        self.modes = {}

    def prepare(self) -> Any:
        """Connect and declare; not measured."""

    def finish(self) -> Any:
        """Disconnect; not measured."""

    async def around(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work; for libraries whose connection is a context manager."""
        await work()

    def stamp(self, number: int, due_ns: int, delay: float) -> Any:
        """Send `stamp(number, due_ns)`, to run after `delay` seconds."""

    def pause(self, milliseconds: int) -> Any:
        """Send `pause(milliseconds)`."""

    def fan(self, count: int, sent_ns: int) -> Any:
        """Send `count` tasks, and one that depends on all and calls `record_lateness(0, sent_ns)`."""


async def _await(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


async def in_groups(count: int, send: Callable[[int], Coroutine[Any, Any, Any]], *, size: int) -> None:
    """Send `count` tasks, `size` at a time."""
    for first in range(0, count, size):
        await asyncio.gather(*(send(number) for number in range(first, min(first + size, count))))


async def paced(rate: float, count: int, send: Callable[[int, int], Any]) -> None:
    """Call `send(number, due_ns)` at a steady rate, by absolute times rather than pauses."""
    began = time.perf_counter()
    waiting: set[asyncio.Task[Any]] = set()
    for number in range(count):
        pause = began + number / rate - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        value = send(number, time.time_ns())
        if isinstance(value, Awaitable):
            task = asyncio.ensure_future(_await(value))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
    if waiting:
        await asyncio.gather(*waiting)


def answer(producer: Producer) -> None:
    """Run the command line and print the figures."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    enqueue = commands.add_parser("enqueue")
    enqueue.add_argument("--mode", required=True)
    enqueue.add_argument("--count", type=int, required=True)
    stamps = commands.add_parser("stamps")
    stamps.add_argument("--rate", type=float, default=0.0)
    stamps.add_argument("--count", type=int, required=True)
    stamps.add_argument("--delay", type=float, default=0.0)
    stamps.add_argument("--after", type=int, default=0, help="start after this many tasks have run")
    pauses = commands.add_parser("pauses")
    pauses.add_argument("--milliseconds", type=int, required=True)
    pauses.add_argument("--count", type=int, required=True)
    fan = commands.add_parser("fan")
    fan.add_argument("--count", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(_run(producer, arguments))


async def _run(producer: Producer, arguments: argparse.Namespace) -> None:
    await _await(producer.prepare())
    figures: dict[str, float] = {}

    async def work() -> None:
        while arguments.command == "stamps" and counted() < arguments.after:
            await asyncio.sleep(0.001)
        wall, cpu = time.perf_counter(), time.process_time()
        await _work(producer, arguments)
        figures["count"] = arguments.count
        figures["seconds"] = time.perf_counter() - wall
        figures["cpu"] = time.process_time() - cpu

    await producer.around(work)
    await _await(producer.finish())
    print(json.dumps(figures))


async def _work(producer: Producer, arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "enqueue":
            await _await(producer.modes[arguments.mode](arguments.count))
        case "stamps" if arguments.rate:
            await paced(arguments.rate, arguments.count, lambda number, now: producer.stamp(number, now, 0.0))
        case "stamps":
            delay_ns = round(arguments.delay * 1e9)

            async def send(number: int) -> None:
                await _await(producer.stamp(number, time.time_ns() + delay_ns, arguments.delay))

            await in_groups(arguments.count, send, size=100)
        case "fan":
            await _await(producer.fan(arguments.count, time.time_ns()))
        case _:

            async def pause(_: int) -> None:
                await _await(producer.pause(arguments.milliseconds))

            await in_groups(arguments.count, pause, size=100)
