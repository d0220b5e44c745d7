"""A scheduler on a database in memory and RabbitMQ that counts its parcels."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from taskmq import TaskMQ
from taskmq.client.plugins import open_broker
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import SendError
from taskmq.model.topology import WorkQueue, is_parcels_queue
from taskmq.scheduler import Scheduler
from tests.unit.app_kit import use_session
from tests.unit.store_kit import Database, StagedStore


class CountingSession(Session):
    """A session that counts the parcels that the broker confirmed."""

    parcels = 0

    async def publish_all(self, queues: Sequence[WorkQueue], messages: Sequence[Outgoing]) -> list[SendError | None]:
        outcomes = await super().publish_all(queues, messages)
        self.parcels += sum(
            error is None and is_parcels_queue(each.queue) for each, error in zip(messages, outcomes, strict=True)
        )
        return outcomes


@asynccontextmanager
async def schedule_jobs(url: str, database: Database) -> AsyncGenerator[tuple[TaskMQ, CountingSession]]:
    """Run a scheduler of the task `work` in the queue `work`."""
    app = TaskMQ(url, name="shop")
    app.task(name="work", queue="work")(_work)
    store = StagedStore(database, clock=SystemClock())
    broker = open_broker(url, BrokerOptions(name="scheduler"))
    session = CountingSession(broker, None, send_timeout=10.0, store=store)
    use_session(app, lambda: session)
    scheduler = Scheduler(app)
    running = asyncio.create_task(scheduler.run())
    try:
        yield app, session
    finally:
        scheduler.stop()
        await running


async def _work(name: str) -> None:
    del name
