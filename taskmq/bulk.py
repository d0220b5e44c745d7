"""Sending many calls in chunks, so that memory stays bounded whatever is iterated."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import Final, Self

from taskmq.broker import Outgoing
from taskmq.errors import PartlySent, SendError
from taskmq.middleware import Sending
from taskmq.topology import WorkQueue

__all__ = ["Batches"]

_CHUNK: Final = 1000


class Batches(Iterator[tuple[list[WorkQueue], list[Outgoing]]]):
    """Chunks of messages; hand the outcomes of each to `settle` before taking the next.

    The middleware's send contexts of a chunk stay open until then, or until the `with` block ends: they see the
    error that ended it. After a chunk with failures there is no further one.
    """

    def __init__(
        self,
        sendings: Iterable[Sending],
        *,
        open_send: Callable[[Sending], AbstractContextManager[object]],
        message_of: Callable[[Sending], tuple[WorkQueue, Outgoing]],
    ) -> None:
        self._sendings = iter(sendings)
        self._open_send = open_send
        self._message_of = message_of
        self._contexts: list[AbstractContextManager[object]] = []
        self._ids: list[str] = []
        self._failures: dict[int, SendError] = {}
        self._settled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for context in self._contexts:
            context.__exit__(kind, error, traceback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[list[WorkQueue], list[Outgoing]]:
        if self._failures:
            raise StopIteration
        queues: dict[WorkQueue, None] = {}
        messages: list[Outgoing] = []
        for sending in islice(self._sendings, _CHUNK):
            self._contexts.append(self._open_send(sending))
            queue, message = self._message_of(sending)
            queues[queue] = None
            messages.append(message)
        if not messages:
            raise StopIteration
        self._ids.extend(message.job_id for message in messages)
        return list(queues), messages

    def settle(self, outcomes: Sequence[SendError | None]) -> None:
        """What became of each message of the last chunk."""
        contexts, self._contexts = self._contexts, []
        for context, error in zip(contexts, outcomes, strict=True):
            if error is not None:
                self._failures[self._settled] = error
            self._settled += 1
            context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def finish(self) -> list[str]:
        """The ids of all jobs.

        Raises:
            PartlySent: some were not sent.
        """
        if self._failures:
            raise PartlySent(self._failures, sent=self._settled - len(self._failures))
        return self._ids
