"""Sending many calls in chunks, so that memory stays bounded whatever is iterated.

    calls -> chunk (encoded, send contexts open) -> on its way -> settled: ids of those that were confirmed

Two chunks are on their way while the next one is made: when one has arrived, the broker is at work on the other.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from contextlib import AbstractContextManager, aclosing
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Self

from taskmq.contracts.broker import Outgoing
from taskmq.errors import PartlySent, SendError
from taskmq.middleware.chain import Sending, open_nothing
from taskmq.model.topology import WorkQueue

__all__ = [
    "LINGER",
    "Batches",
    "Chunk",
    "ConfirmWindow",
    "Outcomes",
    "RunSync",
    "chunks_async",
    "stream_async",
    "stream_sync",
]

Chunk = tuple[list[WorkQueue], list[Outgoing]]
Outcomes = list[SendError | None]
RunSync = Callable[[Callable[[], Awaitable[list[Outcomes]]]], list[Outcomes]]

_CHUNK: Final = 500
_ON_THEIR_WAY: Final = 2
LINGER: Final = 0.1
"""Seconds: who makes the calls of a stream slowly does not wait until a chunk is full."""

# So many calls are made before others get a turn on the loop.
_AT_A_TIME: Final = 200


class Batches:
    """Makes chunks of messages, and knows what became of them; chunks are settled in the order of their making.

    The middleware's send contexts of a chunk stay open until it is settled, or until the `with` block ends: they see
    the error that ended it.

    Args:
        linger: seconds after which a chunk is to be taken, however few its calls are.

    Attributes:
        failures: by position in the input.
    """

    def __init__(
        self,
        *,
        open_send: Callable[[Sending], AbstractContextManager[object]],
        message_of: Callable[[Sending], tuple[WorkQueue, Outgoing]],
        linger: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures: dict[int, SendError] = {}
        # None where there would be nothing in the contexts.
        self._open_send = None if open_send is open_nothing else open_send
        self._message_of = message_of
        self._linger = linger
        self._monotonic = monotonic
        self._contexts: list[AbstractContextManager[object]] = []
        self._queues: dict[WorkQueue, None] = {}
        self._last_queue: WorkQueue | None = None
        self._messages: list[Outgoing] = []
        self._begun = 0.0
        self._taken: deque[tuple[list[str], list[AbstractContextManager[object]]]] = deque()
        self._settled = 0
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        for _, contexts in self._taken:
            for context in contexts:
                context.__exit__(kind, error, traceback)
        for context in self._contexts:
            context.__exit__(kind, error, traceback)

    def __len__(self) -> int:
        """How many calls the chunk in the making has."""
        return len(self._messages)

    def add(self, sending: Sending) -> bool:
        """Add a call to the chunk; whether that is to be taken now."""
        messages = self._messages
        if not messages and self._linger < math.inf:
            self._begun = self._monotonic()
        if self._open_send is not None:
            self._contexts.append(self._open_send(sending))
        queue, message = self._message_of(sending)
        if queue is not self._last_queue:
            self._queues[queue] = None
            self._last_queue = queue
        messages.append(message)
        if len(messages) >= _CHUNK:
            return True
        return self._linger < math.inf and self._monotonic() - self._begun > self._linger

    def take(self) -> Chunk | None:
        """The chunk that was made: the queues, each once, and the messages; None once the block has ended."""
        if self._is_over:
            return None
        chunk = list(self._queues), self._messages
        self._taken.append(([message.job_id for message in self._messages], self._contexts))
        self._queues, self._messages, self._contexts = {}, [], []
        self._last_queue = None
        return chunk

    def settle(self, outcomes: Outcomes) -> list[str]:
        """What became of each message of the first chunk that is not settled; the ids of those that were sent."""
        ids, contexts = self._taken.popleft()
        if not contexts and not any(outcomes):
            self._settled += len(ids)
            return ids
        sent: list[str] = []
        for job_id, context, error in zip(ids, contexts or repeat(None, len(ids)), outcomes, strict=True):
            if error is None:
                sent.append(job_id)
            else:
                self.failures[self._settled] = error
            self._settled += 1
            if context is not None:
                context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        return sent

    def settle_all(self, arrived: Iterable[Outcomes]) -> list[str]:
        """`settle` for several chunks."""
        return [job_id for outcomes in arrived for job_id in self.settle(outcomes)]

    def check(self) -> None:
        """Nothing comes any more, and nothing is on its way.

        Raises:
            PartlySent: some were not sent.
        """
        if self.failures:
            raise PartlySent(self.failures, sent=self._settled - len(self.failures))


class ConfirmWindow:
    """Publishes chunks, two at a time, while the next one is made. For one event loop."""

    def __init__(self, publish: Callable[[Chunk], Coroutine[Any, Any, Outcomes]]) -> None:
        self._publish = publish
        self._on_their_way: deque[asyncio.Task[Outcomes]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._on_their_way

    async def put(self, take: Callable[[], Chunk | None]) -> list[Outcomes]:
        """Send the next chunk on its way, once there is room: what became of those that have arrived.

        Where something of them has failed, nothing more is taken.
        """
        before = self._on_their_way
        arrived: list[Outcomes] = []
        while before and (len(before) >= _ON_THEIR_WAY or before[0].done()):
            arrived.append(await self._arrival())
        if not any(map(any, arrived)) and (chunk := take()) is not None:
            before.append(asyncio.get_running_loop().create_task(self._publish(chunk)))
        return arrived

    async def clear(self) -> list[Outcomes]:
        """Wait until nothing is on its way: what became of what was."""
        arrived: list[Outcomes] = []
        while self._on_their_way:
            arrived.append(await self._arrival())
        return arrived

    async def _arrival(self) -> Outcomes:
        try:
            return await self._on_their_way.popleft()
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Wait no more for what is on its way."""
        for chunk in self._on_their_way:
            chunk.cancel()
        self._on_their_way.clear()


def stream_sync(
    sendings: Iterable[Sending], batches: Batches, conveyor: ConfirmWindow, run: RunSync
) -> Generator[str, None, None]:
    """The ids of the jobs as they are confirmed.

    Args:
        run: runs something on the conveyor's loop and waits for it.

    Raises:
        PartlySent: some were not sent.
    """

    def put() -> list[str]:
        return batches.settle_all(run(lambda: conveyor.put(batches.take)))

    with batches:
        try:
            for sending in sendings:
                if batches.add(sending):
                    yield from put()
                    if batches.failures:
                        break
            if len(batches) and not batches.failures:
                yield from put()
        finally:
            # What is on its way is sent, whatever has ended this.
            last = [] if conveyor.is_empty else batches.settle_all(run(conveyor.clear))
        yield from last
        batches.check()


async def stream_async(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches, conveyor: ConfirmWindow
) -> AsyncGenerator[str, None]:
    """Do what `stream_sync` does, without blocking the event loop."""
    async with aclosing(chunks_async(sendings, batches, conveyor)) as chunks:
        async for job_ids in chunks:
            for job_id in job_ids:
                yield job_id


async def chunks_async(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches, conveyor: ConfirmWindow
) -> AsyncGenerator[list[str], None]:
    """`stream_async` with the ids of a chunk at a time, for who does not look at each."""
    with batches:
        try:
            async with aclosing(_full_chunks(sendings, batches)) as full_chunks:
                async for _ in full_chunks:
                    yield batches.settle_all(await conveyor.put(batches.take))
                    if batches.failures:
                        break
            if len(batches) and not batches.failures:
                yield batches.settle_all(await conveyor.put(batches.take))
        except asyncio.CancelledError:
            conveyor.drop()
            raise
        finally:
            last = batches.settle_all(await conveyor.clear())
        yield last
        batches.check()


async def _full_chunks(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches
) -> AsyncGenerator[None, None]:
    """Adds all of them, and stops at each chunk that is to be taken: once for a chunk, and not for each call."""
    if isinstance(sendings, AsyncIterable):
        async for sending in sendings:
            if batches.add(sending):
                yield
        return
    for number, sending in enumerate(sendings, 1):
        if batches.add(sending):
            yield
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
