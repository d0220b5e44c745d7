"""Works: pieces of a transaction, each with the care that it needs."""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Call", "Care", "FileFailure", "SetCall", "Work"]

C = TypeVar("C")
T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)


class Care(IntEnum):
    """The care that a commit takes."""

    READ = 0
    LOOSE = 1
    """Visible to all processes once committed; survives a kill, and may be undone by a power failure."""
    DURABLE = 2
    """Survives a power failure, unless the file was opened with less durability."""


class FileFailure(Exception):
    """The file cannot be read or written at the moment.

    Attributes:
        is_certain: nothing of the work was done; otherwise that is not known.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class Work(Protocol[C_contra]):
    """A piece of a transaction, beside others."""

    @property
    def care(self) -> Care:
        """Read when the work has been sealed."""
        ...

    @property
    def wakeups(self) -> Sequence[str]:
        """The bells to ring after the commit."""
        ...

    def seal(self) -> None:
        """Called on the loop when the work is handed over: nothing is added any more."""
        ...

    def run(self, transaction: C_contra, /) -> None:
        """Called in the thread, inside the transaction; again, from the start, after a rollback."""
        ...

    def end(self, error: Exception | None) -> None:
        """Called on the loop once the transaction is committed, or with why it is not."""
        ...


class Call(Generic[C, T]):
    """A work with a waiter: `function`, called with the transaction.

    Attributes:
        future: what it returned, or its error.
    """

    def __init__(self, function: Callable[[C], T], *, care: Care, wakeups: Sequence[str] = ()) -> None:
        self.care = care
        self.wakeups = wakeups
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._function = function
        self._result: list[T] = []

    def is_left(self) -> bool:
        """Whether no caller waits for it any more."""
        return self.future.done()

    def seal(self) -> None:
        """Do nothing: it is whole from the start."""

    def run(self, transaction: C, /) -> None:
        # The waiter is gone: what was refused by its deadline must not happen afterwards.
        if not self.future.done():
            self._result = [self._function(transaction)]

    def end(self, error: Exception | None) -> None:
        _end(self.future, self._result, error)


class SetCall(Generic[C]):
    """A call with items, of a function that takes those of many callers at once and answers each item.

    Those that follow each other with the same function are one call of it.

    Attributes:
        answers: what came of its items.
        future: the answers, or an error.
    """

    wakeups: Sequence[str] = ()

    def __init__(
        self, function: Callable[[C, Sequence[Any]], list[Any]], items: Sequence[Any], *, care: Care
    ) -> None:
        self.care = care
        self.function = function
        self.items = items
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.answers: list[Any] = []

    def seal(self) -> None:
        """Do nothing: it is whole from the start."""

    def run(self, transaction: C, /) -> None:
        self.run_with([self], transaction)

    def run_with(self, mates: "Sequence[SetCall[C]]", transaction: C) -> None:
        """Run those with the same function, this one among them, as one call."""
        waited_for = [mate for mate in mates if not mate.future.done()]
        items = [item for mate in waited_for for item in mate.items]
        answers = self.function(transaction, items) if items else []
        begin = 0
        for mate in waited_for:
            end = begin + len(mate.items)
            mate.answers = answers[begin:end]
            begin = end

    def end(self, error: Exception | None) -> None:
        _end(self.future, [self.answers], error)


def _end(future: asyncio.Future[T], result: list[T], error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result[0])
