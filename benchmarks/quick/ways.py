"""Measurement of one way with one tree: `python ways.py TREE WAY NUMBER` prints one JSON object.

A way measures the cost of a task in this process, a worker or a producer: it includes the client's socket but not the
broker. It uses only public names of taskmq, so that older commits can be measured too.
"""

import asyncio
import gc
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

_HERE = Path(__file__).resolve().parents[2]
_ARGUMENTS = ("hello", {"a": 1, "b": "x"})
_GROUP = 100
# Stored jobs of one parcel: as many as a scheduler sends.
_PARCEL = 25
_PARCELS_IN_HAND = 8
# Current names of worker options, and their former names.
_FORMER_OPTIONS = {"max_crashes": "max_starts"}
# The share of tasks that runs before counting starts.
_WARM = 0.2


def main() -> None:
    tree, way, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # The measured tree comes first; the rest of this package is imported from this file's tree.
    sys.path[:0] = [tree, f"{tree}/brokers", f"{tree}/contrib", str(_HERE)]
    import uvloop

    uvloop.install()
    print(json.dumps(asyncio.run(_run(WAYS[way], number))))


async def _run(way: Callable[[int], Awaitable[dict[str, float | None]]], number: int) -> dict[str, float | None]:
    async with asyncio.timeout(120):
        return await way(number)


class _Gauge:
    """Counts from the end of the warm-up on."""

    def __init__(self, number: int) -> None:
        sys.path.append(str(_HERE / "benchmarks" / "quick"))
        from counter import Counter  # type: ignore[import-not-found]

        self._counter = Counter()
        self._warm = round(number * _WARM)
        self._number = number
        self._lock = threading.Lock()
        self._done = 0
        self.figures: dict[str, float | None] = {}
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def count(self) -> None:
        with self._lock:
            self._done += 1
            done = self._done
        if done == self._warm:
            # A full collection of all imported objects would cost more than the measured differences.
            gc.collect()
            gc.freeze()
            self._counter.start()
        elif done == self._number:
            instructions, seconds = self._counter.stop()
            counted = self._number - self._warm
            self.figures = {
                "instructions": None if instructions is None else instructions / counted,
                "microseconds": seconds / counted * 1e6,
            }
            self._loop.call_soon_threadsafe(self.over.set)


class _Player:
    """The fake broker in a separate process."""

    def __init__(self, number: int, task: str, *, parcel: int = 0) -> None:
        words = (number, task, parcel)
        command = [sys.executable, str(_HERE / "benchmarks" / "quick" / "player.py"), *map(str, words)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"amqp://guest:guest@127.0.0.1:{int(self._process.stdout.readline())}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def _app(url: str, *, queue: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Any:
    from taskmq import TaskMQ, WorkQueue

    return TaskMQ(url, queues=[WorkQueue("bench", **queue)], default_queue="bench", **options)


def _worker(app: Any, **options: Any) -> Any:
    """Build a worker with these options, translated to the measured tree's names."""
    from taskmq.worker import Worker, WorkerConfig

    known = inspect.signature(WorkerConfig).parameters
    names = {name: name if name in known else _FORMER_OPTIONS.get(name, name) for name in options}
    quiet = {"name": "w", "control": False, "events": "off"}
    return Worker(app, WorkerConfig(**quiet | {names[name]: value for name, value in options.items()}))


async def _drain(
    number: int,
    define: Callable[[Any, _Gauge], None],
    task: str,
    *,
    queue: Mapping[str, Any] = MappingProxyType({}),
    parcel: int = 0,
    **options: Any,
) -> dict[str, float | None]:
    gauge = _Gauge(number)
    with _Player(number, task, parcel=parcel) as player:
        app = _app(player.url, queue=queue)
        define(app, gauge)
        worker = _worker(app, max_crashes=0, **options)
        running = asyncio.create_task(worker.run())
        await gauge.over.wait()
        worker.drain()
        await running
    return gauge.figures


def _noop(app: Any, gauge: _Gauge) -> None:
    @app.task(name="bench.noop", timeout=30)
    async def noop(number: int, text: str, data: dict[str, int | str]) -> None:
        gauge.count()


async def coroutine(number: int) -> dict[str, float | None]:
    """Measure a worker that runs a no-op coroutine."""
    return await _drain(number, _noop, "bench.noop")


async def events(number: int) -> dict[str, float | None]:
    """Measure a worker that also publishes events."""
    return await _drain(number, _noop, "bench.noop", events="on")


async def recorded(number: int) -> dict[str, float | None]:
    """Measure a worker that also reports every run for the history."""
    return await _drain(number, _noop, "bench.noop", queue={"record": "all"})


async def stored(number: int) -> dict[str, float | None]:
    """Measure a worker that runs stored jobs in parcels, and reports them."""
    # Few at a time, because jobs that have not begun after a second would be returned.
    return await _drain(number, _noop, "bench.noop", parcel=_PARCEL, prefetch=_PARCELS_IN_HAND)


async def waiting(number: int) -> dict[str, float | None]:
    """Measure a worker that runs a coroutine with one suspension."""

    def define(app: Any, gauge: _Gauge) -> None:
        @app.task(name="bench.wait")
        async def wait(number: int, text: str, data: dict[str, int | str]) -> None:
            await asyncio.sleep(0)
            gauge.count()

    return await _drain(number, define, "bench.wait")


async def thread(number: int) -> dict[str, float | None]:
    """Measure a worker that runs a plain no-op function in threads."""

    def define(app: Any, gauge: _Gauge) -> None:
        @app.task(name="bench.plain")
        def plain(number: int, text: str, data: dict[str, int | str]) -> None:
            gauge.count()

    return await _drain(number, define, "bench.plain")


async def _produce(number: int, send: Callable[[Any, int], Awaitable[None]]) -> dict[str, float | None]:
    gauge = _Gauge(number)
    with _Player(0, "bench.noop") as player:
        app = _app(player.url)

        @app.task(name="bench.noop")
        async def noop(number: int, text: str, data: dict[str, int | str]) -> None: ...

        for first in range(0, number, _GROUP * 10):
            await send(noop, first)
            for _ in range(_GROUP * 10):
                gauge.count()
        await app.aclose()
    return gauge.figures


async def concurrent(number: int) -> dict[str, float | None]:
    """Measure a producer with 100 concurrent sends."""

    async def send(noop: Any, first: int) -> None:
        for at in range(first, first + _GROUP * 10, _GROUP):
            await asyncio.gather(*(noop.asend(each, *_ARGUMENTS) for each in range(at, at + _GROUP)))

    return await _produce(number, send)


async def one_by_one(number: int) -> dict[str, float | None]:
    """Measure a producer that sends one job after the other."""

    async def send(noop: Any, first: int) -> None:
        for each in range(first, first + _GROUP * 10):
            await noop.asend(each, *_ARGUMENTS)

    return await _produce(number, send)


async def bulk(number: int) -> dict[str, float | None]:
    """Measure a producer that uses `asend_many`."""

    async def send(noop: Any, first: int) -> None:
        await noop.asend_many((each, *_ARGUMENTS) for each in range(first, first + _GROUP * 10))

    return await _produce(number, send)


async def embedded(number: int) -> dict[str, float | None]:
    """Measure a producer and a worker with results on `memory://`."""
    gauge = _Gauge(number)
    app = _app("memory://bench")

    @app.task(name="bench.noop")
    async def noop(number: int, text: str, data: dict[str, int | str]) -> int:
        gauge.count()
        return number

    worker = _worker(app)
    running = asyncio.create_task(worker.run())
    for first in range(0, number, _GROUP):
        jobs = await noop.asend_many((each, *_ARGUMENTS) for each in range(first, first + _GROUP))
        await asyncio.gather(*(job.aresult(timeout=30) for job in jobs))
    await gauge.over.wait()
    worker.drain()
    await running
    return gauge.figures


WAYS: dict[str, Callable[[int], Awaitable[dict[str, float | None]]]] = {
    "coroutine": coroutine,
    "events": events,
    "recorded": recorded,
    "stored": stored,
    "waiting": waiting,
    "thread": thread,
    "one_by_one": one_by_one,
    "concurrent": concurrent,
    "bulk": bulk,
    "embedded": embedded,
}

if __name__ == "__main__":
    main()
