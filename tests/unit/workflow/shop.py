"""An app for tests of workflows, whose runs are in a store in memory."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from taskmq import Context, Ignore, RetryPolicy, TaskMQ, chain
from taskmq.scheduler.scheduler import Scheduler
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker
from tests.unit.app_kit import new_store, new_url

_FAST: Final = RetryPolicy(max_attempts=3, base="1ms", cap="1ms")


class Shop:
    """An app, its tasks, and a record of their calls."""

    def __init__(self, url: str | None = None, *, store: str | None = None, content_type: Any = "json") -> None:
        self.app = app = TaskMQ(url or new_url(), store=store or new_store(), content_type=content_type)
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.gate = asyncio.Event()
        self.running = 0
        self.most = 0

        @app.task(name="add", retry=None)
        async def add(number: int, other: int = 1) -> int:
            self.ran.append(f"add {number} {other}")
            return number + other

        @app.task(name="total", retry=None)
        async def total(numbers: Sequence[int | None]) -> int:
            return sum(number or 0 for number in numbers)

        @app.task(name="numbers", retry=None)
        async def numbers(count: int) -> list[int]:
            return list(range(count))

        @app.task(name="named", retry=None)
        async def named(name: str) -> str:
            self.ran.append(name)
            if name in self.broken:
                raise ValueError(f"{name} is broken")
            return name

        @app.task(name="waits", retry=None)
        async def waits(number: int) -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            self.ran.append(f"waits {number}")
            try:
                await self.gate.wait()
            finally:
                self.running -= 1
            return number

        @app.task(name="tries", retry=_FAST)
        async def tries(context: Context, name: str) -> int:
            self.ran.append(f"{name} {context.attempt} of {context.max_attempts}")
            raise ValueError(name)

        @app.task(name="steps_aside", retry=None)
        async def steps_aside() -> int:
            raise Ignore("not today")

        @app.task(name="sends", retry=None)
        async def sends(number: int) -> str:
            return (await chain(add.s(number), add.s(10)).asend()).id

        self.add, self.total, self.numbers, self.named = add, total, numbers, named
        self.waits, self.tries, self.steps_aside, self.sends = waits, tries, steps_aside, sends

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        async with self.app:
            worker, scheduler = Worker(self.app, config=WorkerConfig(concurrency=50)), Scheduler(self.app)
            running = asyncio.create_task(worker.run())
            scheduling = asyncio.create_task(scheduler.run())
            try:
                yield
            finally:
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                scheduler.stop()
                await scheduling
