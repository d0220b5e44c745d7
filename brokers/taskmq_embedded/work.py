"""Work items: parts of a transaction, each with its required durability."""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

C = TypeVar("C")
T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)


class Care(IntEnum):
    """Durability that a work item requires of its commit."""

    READ = 0
    LOOSE = 1
    """Visible to all processes once committed; survives a kill, but a power failure may undo it."""
    DURABLE = 2
    """Survives a power failure, unless the file was opened with less durability."""


class FileFailure(Exception):
    """Raised when the file cannot be read or written.

    Attributes:
        is_certain: whether nothing was done; otherwise the outcome is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class Work(Protocol[C_contra]):
    """A part of a transaction, next to other work items."""

    @property
    def care(self) -> Care:
        """Durability of the work item; read after `seal`."""
        ...

    @property
    def wakeups(self) -> Sequence[str]:
        """Names of the wakeups to send after the commit."""
        ...

    def seal(self) -> None:
        """Close the work item for additions; called on the loop before it is passed to the thread."""
        ...

    def run(self, transaction: C_contra, /) -> None:
        """Run in the thread, inside the transaction; called again, from the start, after a rollback."""
        ...

    def end(self, error: Exception | None) -> None:
        """Finish on the loop, after the commit or with the error that prevented it."""
        ...


class Call(Generic[C, T]):
    """A work item with a caller that waits: `function` of the transaction.

    Attributes:
        future: the return value of `function`, or its error.
    """

    def __init__(self, function: Callable[[C], T], *, care: Care, wakeups: Sequence[str] = ()) -> None:
        self.care = care
        self.wakeups = wakeups
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._function = function
        self._result: list[T] = []

    def is_left(self) -> bool:
        """Whether the caller no longer waits."""
        return self.future.done()

    def seal(self) -> None:
        """Do nothing: the work item never changes."""

    def run(self, transaction: C, /) -> None:
        # The caller is gone: work that missed its deadline must not happen afterwards.
        if not self.future.done():
            self._result = [self._function(transaction)]

    def end(self, error: Exception | None) -> None:
        _end(self.future, self._result, error)


class SetCall(Generic[C]):
    """A call of a function that accepts the items of many callers at once and answers each item.

    Consecutive calls with the same function are combined into one.

    Attributes:
        answers: one per item.
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
        """Do nothing: the work item never changes."""

    def run(self, transaction: C, /) -> None:
        self.run_with([self], transaction)

    def run_with(self, mates: "Sequence[SetCall[C]]", transaction: C) -> None:
        """Run these calls of the same function, including this one, as one call."""
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
