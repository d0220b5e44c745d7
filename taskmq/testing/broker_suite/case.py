"""Base of the tests in the broker suite."""

import asyncio
import sys
import unittest
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from taskmq.contracts.broker import Broker, Consumer, Delivery, HeaderValue, Outgoing, Subscription
from taskmq.model.topology import WorkQueue
from taskmq.testing.runner import Suite, eventually


class BrokerCase(Suite):
    """Base of the broker suite: hooks for the adapter, and helpers for tests.

    Attributes:
        process_url: a URL of the same server that `taskmq.client.plugins.open_broker` opens in another process; None
            if the broker lives in one process.
        can_lose: whether `lose` is implemented.
        publish_timeout: timeout of each publish.
    """

    process_url: str | None = None
    can_lose: bool = False
    publish_timeout: float = 10
    _declared: list[WorkQueue]

    def open_broker(self, name: str = "") -> Broker:
        """Return a new broker on the test's server, not yet connected. Called inside the running loop."""
        raise NotImplementedError

    async def lose(self, broker: Broker) -> None:
        """Cut `broker` off from its server, as a broken network does; it may reconnect."""
        raise NotImplementedError

    async def discard(self, queue: WorkQueue) -> None:
        """Delete `queue` at the server; called at the end of a test."""

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._declared = []
        super().run(test)

    def broker(self, name: str = "") -> Broker:
        """Return a broker that is closed at the end of the test."""
        broker = self.open_broker(name)
        self.opened.push_async_callback(broker.aclose)
        return broker

    async def queue(self, broker: Broker) -> str:
        """Return a new queue, declared through `broker`."""
        queue = self.new_queue()
        await broker.declare([queue])
        return queue.name

    def new_queue(self, **options: Any) -> WorkQueue:
        """Return a queue that does not exist yet; `options` are those of `WorkQueue`."""
        queue = WorkQueue(f"suite.{uuid.uuid4().hex[:12]}", **options)
        if not self._declared:
            self.opened.push_async_callback(self._discard_all)
        self._declared.append(queue)
        return queue

    async def publish(self, broker: Broker, *messages: Outgoing) -> None:
        """Publish all at once and return when each is confirmed."""
        futures = [broker.publish(message, timeout=self.publish_timeout) for message in messages]
        await asyncio.gather(*futures)

    async def send(self, broker: Broker, queue: str, *texts: str) -> None:
        await self.publish(broker, *(message(queue, text) for text in texts))

    def inbox(self) -> "Inbox":
        return Inbox(self.patience)

    async def consume(
        self, broker: Broker, *queues: str, prefetch: int = 100, inbox: "Inbox | None" = None
    ) -> tuple["Inbox", Consumer]:
        inbox = inbox or self.inbox()
        consumer = await broker.consume([Subscription(queue, prefetch) for queue in queues], inbox)
        return inbox, consumer

    async def expect_ready(self, broker: Broker, queue: str, count: int) -> None:
        """Wait until `count` messages are ready in `queue`."""

        async def ready() -> int:
            (stats,) = await broker.stats([queue])
            return stats.ready

        await eventually(ready, count, within=self.patience)

    async def expect_only(self, broker: Broker, queue: str, *texts: str) -> None:
        """Consume exactly `texts` from `queue`, in this order, with nothing before, between or after."""
        await self.send(broker, queue, "the last one")
        inbox, consumer = await self.consume(broker, queue, prefetch=10)
        expected = [*texts, "the last one"]
        assert bodies(await inbox.take_and_ack(len(expected))) == expected
        await consumer.stop()
        assert not inbox.untaken

    async def expect_all(self, broker: Broker, queue: str, *texts: str) -> None:
        """Consume exactly `texts` from `queue`, in any order."""
        await self.send(broker, queue, "the last one")
        inbox, consumer = await self.consume(broker, queue, prefetch=10)
        expected = sorted([*texts, "the last one"])
        assert sorted(bodies(await inbox.take_and_ack(len(expected)))) == expected
        await consumer.stop()
        assert not inbox.untaken

    async def take_in_killed_process(self, queue: str, count: int) -> None:
        """Let another process hold `count` messages, then kill it.

        Raises:
            SkipTest: the adapter's broker lives in one process.
        """
        if self.process_url is None:
            raise unittest.SkipTest("this broker lives in one process")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "taskmq.testing.broker_suite.browse_holder", self.process_url, queue, str(count)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self.patience):
                assert await process.stdout.readline() == b"holding\n"
        finally:
            process.kill()
            await process.communicate()

    def require_lose(self) -> None:
        if not self.can_lose:
            raise unittest.SkipTest("this adapter has no way to cut a broker off")

    async def _discard_all(self) -> None:
        for queue in self._declared:
            await self.discard(queue)


def message(
    queue: str,
    text: str | bytes,
    *,
    due: int | None = None,
    headers: Mapping[str, HeaderValue] | None = None,
) -> Outgoing:
    """Return a message whose body is `text`."""
    return Outgoing(
        queue=queue,
        body=text.encode() if isinstance(text, str) else text,
        content_type="application/json",
        job_id=str(uuid.uuid4()),
        task="suite.task",
        due=due,
        headers=headers or {},
    )


@asynccontextmanager
async def peek(broker: Broker, queue: str, *, limit: int) -> AsyncGenerator[list[Delivery], None]:
    """Take up to `limit` ready messages from the front of a queue; unsettled ones return when the block ends."""
    async with broker.browse(queue) as browser:
        yield await browser.take(limit)


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.body.decode() for delivery in deliveries]


class Inbox:
    """A `deliver` callback that collects deliveries in order."""

    def __init__(self, patience: float) -> None:
        self.deliveries: list[Delivery] = []
        self._patience = patience
        self._taken = 0
        self._changed = asyncio.Event()

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._changed.set()

    @property
    def untaken(self) -> list[Delivery]:
        return self.deliveries[self._taken :]

    async def take(self, count: int) -> list[Delivery]:
        """Return the next `count` deliveries, unsettled.

        Raises:
            AssertionError: they did not arrive in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                while len(self.untaken) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"{len(self.untaken)} of {count} deliveries arrived within {self._patience} s: "
                f"{[delivery.body[:40] for delivery in self.untaken]}"
            ) from None
        taken = self.untaken[:count]
        self._taken += count
        return taken

    async def take_and_ack(self, count: int) -> list[Delivery]:
        """Return the next `count` deliveries, acknowledging each on arrival so that more can follow."""
        taken: list[Delivery] = []
        while len(taken) < count:
            for delivery in await self.take(max(1, min(len(self.untaken), count - len(taken)))):
                delivery.ack()
                taken.append(delivery)
        return taken
