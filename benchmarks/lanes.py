"""`python -m benchmarks.lanes`: comparison of lanes with a single queue, on RabbitMQ.

- throughput: one worker drains queued no-op jobs of 1,000 tenants from one queue and from 16 lanes, in pairs of
  alternating order; the median of the ratios counts.
- wait: time from `send` to the start of the run for a tenant that sends 50 jobs a second, alone and while another
  tenant floods the queue, with one queue and with 16 lanes. Jobs take up to 40 ms (uniform); the worker has 32 slots.

Sender, worker and broker are separate processes.
"""

import argparse
import asyncio
import multiprocessing
import random
import statistics
import time
from collections.abc import Sequence
from typing import Final

from taskmq import Context, TaskMQ, WorkQueue
from taskmq.worker import Worker, WorkerConfig
from tests.servers import RabbitMQ

_LANES: Final = 16
_TENANTS: Final = 1_000
_SLOTS: Final = 32
_LONGEST_RUN: Final = 0.04
_RATE: Final = 50
_PATIENCE: Final = 300.0
_PERCENTILES: Final = (50, 95, 99)
_PROCESSES: Final = multiprocessing.get_context("spawn")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes")
    parser.add_argument("--flood", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=300_000, help="jobs to drain")
    parser.add_argument("--quiet", type=int, default=1_000, help="jobs of the quiet tenant")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the throughput part")
    options = parser.parse_args(arguments)
    with RabbitMQ() as server:
        print(f"RabbitMQ {server.version}")
        print(f"{'drained':22}{'jobs a second':>16}{'ratio':>8}")
        ratios: list[float] = []
        for number in range(options.rounds):
            order = (None, _LANES) if number % 2 == 0 else (_LANES, None)
            rates = {lanes: asyncio.run(_drain(server.create_vhost(), lanes, options.jobs)) for lanes in order}
            ratios.append(rates[_LANES] / rates[None])
            for lanes, rate in rates.items():
                print(f"{_kind(lanes):22}{rate:16,.0f}{rate / rates[None]:8.2f}", flush=True)
        print(f"{'median of the ratios':38}{statistics.median(ratios):8.2f}")
        print(f"\n{'wait in ms, quiet':22}" + "".join(f"{f'p{of}':>8}" for of in _PERCENTILES) + f"{'left':>10}")
        for lanes in (_LANES, None):
            for flood in (0, options.flood):
                waits, left = asyncio.run(_wait(server.create_vhost(), lanes, options.quiet, flood))
                figures = "".join(f"{waits[len(waits) * of // 100]:8.1f}" for of in _PERCENTILES)
                name = f"{_kind(lanes)}, flooded" if flood else f"{_kind(lanes)}, alone"
                print(f"{name:22}{figures}{left:10,}", flush=True)
    return 0


def _kind(lanes: int | None) -> str:
    return "one queue" if lanes is None else f"{lanes} lanes"


def _app(url: str, lanes: int | None) -> TaskMQ:
    return TaskMQ(url, queues=[WorkQueue("work", lanes=lanes)], send_timeout="60s")


async def _drain(url: str, lanes: int | None, jobs: int) -> float:
    app = _app(url, lanes)
    left, over = jobs, asyncio.Event()

    @app.task(name="noop", queue="work", timeout="1m")
    async def noop() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    # Interleave the tenants' jobs, as when many tenants send and none is noisy.
    calls = [noop.options(tenant=f"tenant {number}") for number in range(_TENANTS)]
    async with app:
        left = jobs
        for begin in range(0, jobs, _TENANTS):
            await asyncio.gather(*(calls[number % _TENANTS].asend() for number in range(begin, begin + _TENANTS)))
        worker = Worker(app, WorkerConfig(concurrency=_SLOTS))
        begun = time.perf_counter()
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(_PATIENCE):
            await over.wait()
        seconds = time.perf_counter() - begun
        worker.drain()
        await running
    return jobs / seconds


async def _wait(url: str, lanes: int | None, quiet: int, flood: int) -> tuple[list[float], int]:
    """Return the quiet tenant's waits in ms, sorted, and the rest of the flood at its end."""
    app = _app(url, lanes)
    # Runs of equal length would start and end together, and a job in between would wait for all of them.
    rng = random.Random(20261125)
    waits: list[float] = []
    over = asyncio.Event()

    @app.task(name="work", queue="work", timeout="1m")
    async def work(context: Context, sent: float) -> None:
        if context.tenant == "quiet":
            waits.append(1000 * (time.time() - sent))
            if len(waits) >= quiet:
                over.set()
        await asyncio.sleep(rng.uniform(0, _LONGEST_RUN))

    worker = Worker(app, WorkerConfig(concurrency=_SLOTS))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    sender = _PROCESSES.Process(target=_send, args=(url, lanes, quiet, flood))
    sender.start()
    try:
        async with asyncio.timeout(_PATIENCE):
            await over.wait()
        parts = await app.sessions.current().broker.stats(WorkQueue("work", lanes=lanes).always)
    finally:
        sender.terminate()
        sender.join()
        worker.requeue_now()
        await running
    return sorted(waits), sum(part.ready for part in parts)


def _send(url: str, lanes: int | None, quiet: int, flood: int) -> None:
    asyncio.run(_send_all(url, lanes, quiet, flood))


async def _send_all(url: str, lanes: int | None, quiet: int, flood: int) -> None:
    app = _app(url, lanes)

    @app.task(name="work", queue="work", timeout="1m")
    async def work(context: Context, sent: float) -> None: ...

    rng = random.Random(20261125)
    async with app:
        if flood:
            await work.options(tenant="flood").asend_many((0.0,) for _ in range(flood))
        for _ in range(quiet):
            await asyncio.sleep(rng.expovariate(_RATE))
            await work.options(tenant="quiet").asend(time.time())


if __name__ == "__main__":
    raise SystemExit(main())
