"""Walks through the dead letters of a queue, oldest first, for queues of any length."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from taskmq.contracts.broker import Broker, Browser, Delivery
from taskmq.errors import QueueMissing
from taskmq.model.topology import PARKING, UNROUTABLE, check_queue_name, dead_letter_queue, shard_queue
from taskmq.operations.dead_letters.letter import DeadLetter, read_letter

_BATCH: Final = 500

Progress = Callable[[int, int], None]
"""Called after each batch with the number of letters read and the expected number."""


def letter_queue(queue: str) -> str:
    """Return the queue that has the dead letters of `queue`. The parking and unroutable queues hold their own.

    Raises:
        InvalidOption: the queue's name is invalid.
    """
    return queue if queue in (PARKING, UNROUTABLE) else dead_letter_queue(check_queue_name(queue))


async def list_queues_with_letters(broker: Broker, queues: Iterable[str]) -> list[str]:
    """Return the logical names of the queues with dead letters, including the parking and unroutable queues.

    Raises:
        InvalidOption: a queue's name is invalid.
        BrokerUnavailable: the broker could not be reached.
    """
    names = {letter_queue(name): name for name in (*queues, PARKING, UNROUTABLE)}
    return [names[found.queue] for found in await broker.stats(names) if found.ready]


@asynccontextmanager
async def walk(
    broker: Broker, queue: str, *, depth: int | None, expected: int | None = None, progress: Progress | None = None
) -> "AsyncGenerator[Walk]":
    """Walk through the letters that are in the queue now, at most `depth`; later ones are not read.

    Letters that were read stay hidden until the walk ends. Unsettled ones then return to their positions.

    Args:
        expected: the number of letters after which the caller probably stops, for the progress; None if unknown.

    Raises:
        InvalidOption: the queue's name is invalid.
        QueueMissing: there is no such queue.
    """
    name = letter_queue(queue)
    ready = await count_letters(broker, queue)
    async with broker.browse(name) as browser:
        count = ready if depth is None else min(depth, ready)
        yield Walk(browser, count, count if expected is None else min(expected, count), progress)


async def count_letters(broker: Broker, queue: str) -> int:
    """Return the number of dead letters of a queue; 0 if none of its jobs has died.

    Raises:
        InvalidOption: the queue's name is invalid.
        QueueMissing: there is no such queue.
    """
    name = letter_queue(queue)
    if found := await broker.stats([name]):
        return found[0].ready
    if name == queue or not await broker.stats([queue, shard_queue(queue, 0)]):
        raise QueueMissing(name)
    return 0


class Walk:
    """A walk through a queue's letters; see `walk`."""

    def __init__(self, browser: Browser, count: int, expected: int, progress: Progress | None) -> None:
        self._browser = browser
        self._count = count
        self._expected = expected
        self._progress = progress
        self.read_count = 0

    async def next(self, limit: int = _BATCH) -> list[tuple[Delivery, DeadLetter]]:
        """Return the next letters, at most `limit`; an empty list at the end."""
        wanted = min(limit, _BATCH, self._count - self.read_count)
        if wanted <= 0:
            return []
        piece = [(delivery, read_letter(delivery)) for delivery in await self._browser.take(wanted)]
        self.read_count += len(piece)
        if self._progress is not None and piece:
            self._progress(self.read_count, max(self.read_count, self._expected))
        return piece
