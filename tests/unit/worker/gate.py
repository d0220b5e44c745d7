"""A worker on `memory://`, and a task that waits at a gate."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from taskmq import Context
from taskmq.contracts.broker import Delivery
from taskmq.worker import Worker, WorkerConfig
from tests.unit.worker.staged import StagedApp, open_staged, settle_loop
from tests.virtual_time import run


class Gate:
    """A task that waits until the gate opens, and a record of its runs."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started: list[str] = []
        self.finished: list[str] = []
        self.attempts: list[tuple[str, int, bool]] = []
        self.running = 0
        self.most = 0

    def define(self, app: StagedApp, **options: Any) -> None:
        @app.task(name="gated", queue="work", **options)
        async def gated(context: Context, label: str) -> str:
            self.started.append(label)
            self.attempts.append((label, context.attempt, context.redelivered))
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.open.wait()
            finally:
                self.running -= 1
            self.finished.append(label)
            return label


async def send(app: StagedApp, *labels: str, queue: str = "work", task: str = "gated") -> None:
    for label in labels:
        body = b'{"task":"%s","id":"%s","args":["%s"]}' % (task.encode(), label.encode(), label.encode())
        await app.put(body, queue=queue, job_id=label, task=task)


@asynccontextmanager
async def working(app: StagedApp, **config: Any) -> Any:
    """Run a worker; drain it at the end if it is still running."""
    worker = Worker(app, WorkerConfig(name="w1", **config))
    running = asyncio.create_task(worker.run())
    try:
        waiting = asyncio.create_task(worker.is_ready.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await settle_loop()
        yield worker, running
    finally:
        worker.requeue_now()
        await asyncio.wait((running,))


def play(test: Callable[[StagedApp, Gate], Awaitable[None]], *, with_state: bool = True, **options: Any) -> None:
    async def main() -> None:
        gate = Gate()
        with open_staged(with_state=with_state) as app:
            gate.define(app, **options)
            await test(app, gate)

    run(main())


def ids(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.message_id for delivery in deliveries]
