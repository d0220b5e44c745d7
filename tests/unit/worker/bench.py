"""A processor, and the outcome of single messages."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from taskmq import TaskMQ
from taskmq.executors import CoroutineExecutor, ThreadExecutor
from taskmq.middleware.chain import Middleware
from taskmq.model.outcome import Outcome
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.testing import FakeClock
from taskmq.worker import WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.processor import Processor
from tests.unit.worker.staged import FakeDelivery

NOW = 1_700_000_000_000


def run(main: Coroutine[Any, Any, None]) -> None:
    async def run_with_timeout() -> None:
        async with asyncio.timeout(20):
            await main

    asyncio.run(run_with_timeout())


@dataclass
class Bench:
    """An app, a processor for it, and a record of its tasks."""

    app: TaskMQ
    clock: FakeClock
    processor: Processor
    threads: ThreadExecutor

    async def outcome(self, body: object, **options: Any) -> Outcome:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        read = self.processor.read(FakeDelivery(data, **options))
        return await self.processor.run(read) if isinstance(read, Attempt) else read


@contextmanager
def bench(
    define: Callable[[TaskMQ], object], *, config: WorkerConfig | None = None, middleware: tuple[Middleware, ...] = ()
) -> Iterator[Bench]:
    clock = FakeClock(NOW)
    app = TaskMQ("memory://processor", clock=clock, middleware=middleware)
    define(app)
    threads = ThreadExecutor()
    executors: dict[ExecutorKind, Executor] = {"async": CoroutineExecutor(), "thread": threads}
    yield Bench(app, clock, Processor(app, executors, config or WorkerConfig()), threads)


def outcome_of(define: Callable[[TaskMQ], object], body: object, **options: Any) -> Outcome:
    seen: list[Outcome] = []

    async def main() -> None:
        with bench(define) as it:
            seen.append(await it.outcome(body, **options))
            await it.threads.aclose()

    run(main())
    return seen[0]


def add(app: TaskMQ) -> None:
    @app.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b


def nothing(app: TaskMQ) -> None:
    """Build an app without tasks."""
