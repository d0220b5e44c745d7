"""Going through the dead letters of a queue, oldest first, however many there are."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from taskmq.contracts.broker import Broker, Browser, Delivery
from taskmq.errors import QueueMissing
from taskmq.model.topology import PARKING, UNROUTABLE, check_queue_name, dead_letter_queue, shard_queue
from taskmq.operations.dead_letters.letter import DeadLetter, read_letter

__all__ = ["Progress", "Walk", "count_letters", "letter_queue", "queues_with_letters", "walk"]

_PIECE: Final = 500

Progress = Callable[[int, int], None]
"""Called after each piece with how many letters were looked at, and how many there are to look at."""


def letter_queue(queue: str) -> str:
    """Where the dead letters of `queue` are; the two shared queues of lost messages are letters themselves.

    Raises:
        InvalidOption: a queue cannot be called that.
    """
    return queue if queue in (PARKING, UNROUTABLE) else dead_letter_queue(check_queue_name(queue))


async def queues_with_letters(broker: Broker, queues: Iterable[str]) -> list[str]:
    """Which of the queues have dead letters, as people name them, and the shared queues of lost messages.

    Raises:
        InvalidOption: a queue cannot be called that.
        BrokerUnavailable: the broker could not be reached.
    """
    names = {letter_queue(name): name for name in (*queues, PARKING, UNROUTABLE)}
    return [names[found.queue] for found in await broker.stats(names) if found.ready]


@asynccontextmanager
async def walk(
    broker: Broker, queue: str, *, depth: int | None, progress: Progress | None = None
) -> "AsyncGenerator[Walk]":
    """A walk through the letters that are there now, at most `depth`; what comes later is not looked at.

    Until it ends, it keeps what it has passed; then what was not settled is in its place again.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
    """
    name = letter_queue(queue)
    ready = await count_letters(broker, queue)
    async with broker.browse(name) as look:
        yield Walk(look, ready if depth is None else min(depth, ready), progress)


async def count_letters(broker: Broker, queue: str) -> int:
    """How many dead letters wait; a queue none of whose jobs has died has none.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
    """
    name = letter_queue(queue)
    if found := await broker.stats([name]):
        return found[0].ready
    if name == queue or not await broker.stats([queue, shard_queue(queue, 0)]):
        raise QueueMissing(name)
    return 0


class Walk:
    """One walk; see `walk`."""

    def __init__(self, look: Browser, count: int, progress: Progress | None) -> None:
        self._look = look
        self._count = count
        self._progress = progress
        self.looked = 0

    async def next(self, limit: int = _PIECE) -> list[tuple[Delivery, DeadLetter]]:
        """The next letters, at most `limit`; empty at the end."""
        wanted = min(limit, _PIECE, self._count - self.looked)
        if wanted <= 0:
            return []
        piece = [(delivery, read_letter(delivery)) for delivery in await self._look.take(wanted)]
        self.looked += len(piece)
        if self._progress is not None and piece:
            self._progress(self.looked, self._count)
        return piece
