"""`python -m benchmarks.due_together`: lateness of 10,000 jobs due at the same instant, by where they waited.

The jobs are sent over fifteen seconds and become due some seconds after the last one; one worker runs them. They wait
in the broker's delay queues (`delay="broker"`) or in Redis (`delay="state"`). `--profile` shows the RabbitMQ node's
activity in the second after that instant.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final, Literal

from benchmarks.node_profile import node_profile
from taskmq import TaskMQ
from taskmq.worker import Worker, WorkerConfig
from tests.servers import RabbitMQ, Redis

_JOBS: Final = 10_000
_BATCHES: Final = 100
_SENDING: Final = 15.0
_AHEAD: Final = 25.0
_PATIENCE: Final = 120.0
_PROFILED_MS: Final = 1000

_Where = Literal["broker", "state"]
_PLACES: Final[tuple[_Where, ...]] = ("broker", "state")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.due_together")
    parser.add_argument("--rabbitmq", help="RabbitMQ version, such as 4.3; default: the installed one")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="profile the RabbitMQ node")
    options = parser.parse_args(arguments)
    with RabbitMQ(options.rabbitmq) as broker, Redis() as state:
        print(f"RabbitMQ {broker.version}; lateness in ms")
        print(f"{'waits in':12}{'first':>8}{'p50':>8}{'p99':>8}{'last':>8}")
        for number in range(options.rounds):
            for where in _PLACES:
                # Vary the instant within the shortest delay level.
                due = time.time() + _AHEAD + number * 0.137
                with ThreadPoolExecutor() as beside:
                    profile = (
                        beside.submit(node_profile, broker, start_ms=int(due * 1000), window_ms=_PROFILED_MS)
                        if options.profile
                        else None
                    )
                    late = asyncio.run(_lateness(broker.create_vhost(), state.url, where, due))
                figures = (late[0], late[len(late) // 2], late[len(late) * 99 // 100], late[-1])
                print(f"{where:12}" + "".join(f"{figure:8,.0f}" for figure in figures), flush=True)
                if profile is not None:
                    print(profile.result(), flush=True)
    return 0


async def _lateness(broker: str, state: str, where: _Where, due: float) -> list[float]:
    """Return the lateness of each job's start in ms, sorted."""
    app = TaskMQ(broker, state=state, delay=where)
    late: list[float] = []
    all_began = asyncio.Event()

    @app.task(name="due")
    async def task(_number: int) -> None:
        late.append((time.time() - due) * 1000)
        if len(late) == _JOBS:
            all_began.set()

    worker = Worker(app, WorkerConfig(concurrency=200))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    calls = task.options(eta=datetime.fromtimestamp(due, UTC))
    began, size = time.monotonic(), _JOBS // _BATCHES
    for batch in range(_BATCHES):
        await asyncio.gather(*(calls.asend(batch * size + number) for number in range(size)))
        await asyncio.sleep(max(0.0, began + _SENDING * (batch + 1) / _BATCHES - time.monotonic()))
    async with asyncio.timeout(_PATIENCE):
        await all_began.wait()
    worker.drain()
    await running
    await app.aclose()
    return sorted(late)


if __name__ == "__main__":
    raise SystemExit(main())
