"""Helpers shared by the tests of the embedded broker."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from taskmq.contracts.broker import Broker, Delivery, Outgoing
from taskmq.model.topology import WorkQueue

PATIENCE = 30.0


def run(main: Coroutine[Any, Any, None], *, within: float = 30) -> None:
    """Run a test's coroutine on a new loop."""

    async def run_with_timeout() -> None:
        async with asyncio.timeout(within):
            await main

    asyncio.run(run_with_timeout())


def message(text: str, queue: str = "q", *, due: int | None = None, job_id: str | None = None) -> Outgoing:
    return Outgoing(
        queue=queue,
        body=text.encode(),
        content_type="application/json",
        job_id=text if job_id is None else job_id,
        task="test",
        due=due,
    )


async def send(broker: Broker, *texts: str, queue: str = "q", due: int | None = None) -> None:
    await asyncio.gather(*(broker.publish(message(text, queue, due=due), timeout=PATIENCE) for text in texts))


async def declare(broker: Broker, *names: str) -> None:
    await broker.declare([WorkQueue(name) for name in names or ("q",)])


class Inbox(list[Delivery]):
    """A `deliver` that keeps its messages."""

    def __call__(self, delivery: Delivery) -> None:
        self.append(delivery)

    @property
    def texts(self) -> list[str]:
        return [delivery.body.decode() for delivery in self]


async def ready(broker: Broker, queue: str = "q") -> int:
    (stats,) = await broker.stats([queue])
    return stats.ready


async def settle_loop() -> None:
    """Run everything that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)
