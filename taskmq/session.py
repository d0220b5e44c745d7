"""One event loop's connections of an app: its broker, its state, and what was declared through them."""

import asyncio
from collections.abc import Sequence

from taskmq.broker import Broker, Outgoing
from taskmq.errors import BrokerUnavailable, SendError
from taskmq.stores import State
from taskmq.topology import WorkQueue

__all__ = ["Session"]


class Session:
    """Owned by one loop. Nothing connects before it is used."""

    def __init__(self, broker: Broker, state: State | None, *, send_timeout: float) -> None:
        self.broker = broker
        self.state = state
        self._send_timeout = send_timeout
        self._declared: set[str] = set()

    async def declare(self, queues: Sequence[WorkQueue]) -> None:
        """Make sure that the queues exist, once per session.

        Raises:
            BrokerUnavailable: not within the send timeout.
            TopologyMismatch: a queue exists with other properties.
        """
        missing = [queue for queue in queues if queue.name not in self._declared]
        if not missing:
            return
        end = asyncio.get_running_loop().time() + self._send_timeout
        # On its own, so that a broker which is not there says what it is that fails.
        await self.broker.connect(timeout=self._send_timeout)
        try:
            async with asyncio.timeout_at(end):
                await self.broker.declare(missing)
        except TimeoutError:
            raise BrokerUnavailable(
                f"{self.broker.address} did not declare its queues within {self._send_timeout:g} s"
            ) from None
        self._declared.update(queue.name for queue in missing)

    def is_declared(self, queue: WorkQueue) -> bool:
        return queue.name in self._declared

    def publish(self, message: Outgoing) -> "asyncio.Future[None]":
        """Publish to a queue that was declared; the future ends as the broker's does."""
        return self.broker.publish(message, timeout=self._send_timeout)

    async def declare_and_publish(self, queue: WorkQueue, message: Outgoing) -> None:
        """Publish one message.

        Raises:
            SendError: one of its kinds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._send_timeout
        await self.declare([queue])
        # One deadline for both.
        await self.broker.publish(message, timeout=max(end - loop.time(), 0))

    async def publish_all(self, queues: Sequence[WorkQueue], messages: Sequence[Outgoing]) -> list[SendError | None]:
        """Publish many, pipelined; what happened to each."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._send_timeout
        try:
            await self.declare(queues)
        except SendError as error:
            return [error] * len(messages)
        left = max(end - loop.time(), 0)
        futures = [self.broker.publish(message, timeout=left) for message in messages]
        await asyncio.wait(futures)
        outcomes: list[SendError | None] = []
        for future in futures:
            failure = future.exception()
            if failure is not None and not isinstance(failure, SendError):
                raise failure
            outcomes.append(failure)
        return outcomes

    async def aclose(self) -> None:
        """Close both; what was published is with the broker before this returns."""
        try:
            await self.broker.aclose()
        finally:
            if self.state is not None:
                await self.state.aclose()
