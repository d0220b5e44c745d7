"""Sending of many calls in chunks, so that memory stays bounded for any iterable.

    calls -> chunk (encoded, send contexts open) -> in flight -> settled: ids of the confirmed jobs

Two chunks are in flight while the next one is built, so the broker is always busy.
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

Chunk = tuple[list[WorkQueue], list[Outgoing]]
Outcomes = list[SendError | None]
RunSync = Callable[[Callable[[], Awaitable[list[Outcomes]]]], list[Outcomes]]

_CHUNK: Final = 500
_IN_FLIGHT: Final = 2
LINGER: Final = 0.1
"""The maximum age of a partial chunk, in seconds, for streams whose calls arrive slowly."""

# The number of calls after which other tasks of the event loop get a turn.
_CALLS_PER_TURN: Final = 200


class Batches:
    """Builds chunks of messages and records their outcomes; chunks are settled in the order they were built.

    The middleware's send contexts of a chunk stay open until it is settled, or until the `with` block ends with an
    error, which they see.

    Args:
        linger: the maximum age of a partial chunk, in seconds.

    Attributes:
        failures: errors by position in the input.
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
        # None if the contexts would be empty.
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
        """Count the calls in the current chunk."""
        return len(self._messages)

    def add(self, sending: Sending) -> bool:
        """Add a call to the chunk. Returns whether the chunk should be taken now."""
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
        """Return the current chunk: its distinct queues and messages; None after the block ended."""
        if self._is_over:
            return None
        chunk = list(self._queues), self._messages
        self._taken.append(([message.job_id for message in self._messages], self._contexts))
        self._queues, self._messages, self._contexts = {}, [], []
        self._last_queue = None
        return chunk

    def settle(self, outcomes: Outcomes) -> list[str]:
        """Record the outcomes of the oldest unsettled chunk. Returns the ids of its sent jobs."""
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
        """Settle several chunks, see `settle`."""
        return [job_id for outcomes in arrived for job_id in self.settle(outcomes)]

    def check(self) -> None:
        """Check that all calls were sent, after the last chunk is settled.

        Raises:
            PartlySent: some were not sent.
        """
        if self.failures:
            raise PartlySent(self.failures, sent=self._settled - len(self.failures))


class ConfirmWindow:
    """Publishes chunks, two at a time, while the next one is built. For one event loop."""

    def __init__(self, publish: Callable[[Chunk], Coroutine[Any, Any, Outcomes]]) -> None:
        self._publish = publish
        self._in_flight: deque[asyncio.Task[Outcomes]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._in_flight

    async def put(self, take: Callable[[], Chunk | None]) -> list[Outcomes]:
        """Publish the next chunk once there is room. Returns the outcomes of the chunks that have ended.

        After a failure no further chunk is taken.
        """
        before = self._in_flight
        arrived: list[Outcomes] = []
        while before and (len(before) >= _IN_FLIGHT or before[0].done()):
            arrived.append(await self._next_outcomes())
        if not any(map(any, arrived)) and (chunk := take()) is not None:
            before.append(asyncio.get_running_loop().create_task(self._publish(chunk)))
        return arrived

    async def clear(self) -> list[Outcomes]:
        """Wait until nothing is in flight. Returns the outcomes."""
        arrived: list[Outcomes] = []
        while self._in_flight:
            arrived.append(await self._next_outcomes())
        return arrived

    async def _next_outcomes(self) -> Outcomes:
        try:
            return await self._in_flight.popleft()
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Stop waiting for the chunks in flight."""
        for chunk in self._in_flight:
            chunk.cancel()
        self._in_flight.clear()


def stream_sync(
    sendings: Iterable[Sending], batches: Batches, window: ConfirmWindow, run: RunSync
) -> Generator[str, None, None]:
    """Yield the ids of jobs as they are confirmed.

    Args:
        run: runs a coroutine on the window's loop and waits for it.

    Raises:
        PartlySent: some were not sent.
    """

    def put() -> list[str]:
        return batches.settle_all(run(lambda: window.put(batches.take)))

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
            # Chunks in flight are sent even if an error ended the stream.
            last = [] if window.is_empty else batches.settle_all(run(window.clear))
        yield from last
        batches.check()


async def stream_async(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches, window: ConfirmWindow
) -> AsyncGenerator[str, None]:
    """Do what `stream_sync` does, without blocking the event loop."""
    async with aclosing(chunks_async(sendings, batches, window)) as chunks:
        async for job_ids in chunks:
            for job_id in job_ids:
                yield job_id


async def chunks_async(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches, window: ConfirmWindow
) -> AsyncGenerator[list[str], None]:
    """Yield ids per chunk, for callers that do not need each of them as it is confirmed."""
    with batches:
        try:
            async with aclosing(_full_chunks(sendings, batches)) as full_chunks:
                async for _ in full_chunks:
                    yield batches.settle_all(await window.put(batches.take))
                    if batches.failures:
                        break
            if len(batches) and not batches.failures:
                yield batches.settle_all(await window.put(batches.take))
        except asyncio.CancelledError:
            window.drop()
            raise
        finally:
            last = batches.settle_all(await window.clear())
        yield last
        batches.check()


async def _full_chunks(
    sendings: Iterable[Sending] | AsyncIterable[Sending], batches: Batches
) -> AsyncGenerator[None, None]:
    """Add all calls and yield once per full chunk instead of once per call."""
    if isinstance(sendings, AsyncIterable):
        async for sending in sendings:
            if batches.add(sending):
                yield
        return
    for number, sending in enumerate(sendings, 1):
        if batches.add(sending):
            yield
        if number % _CALLS_PER_TURN == 0:
            await asyncio.sleep(0)
