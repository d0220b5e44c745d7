"""Calls as generators of statements, and what runs them."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

__all__ = ["LOCK", "Query", "Row", "Runner", "Steps", "Work", "ask", "first", "places"]

T = TypeVar("T")

Row = Sequence[Any]


class Query(NamedTuple):
    """A statement, and its values."""

    text: str
    args: tuple[object, ...] = ()


Steps = Generator[Query, Sequence[Row], T]
"""A call: yields statements, is sent their rows."""
Work = Callable[[int], Steps[T]]
"""Begins a call, at the store's time in ms; again from the start where its transaction has to begin anew."""

LOCK: Final = Query("lock")
"""Wait until no other change of accounts is under way, until the end of the transaction; SQLite needs none."""


class Runner(Protocol):
    """Runs calls on a database. What a call raises of taskmq's errors rolls it back."""

    async def read(self, work: Work[T]) -> T:
        """What the call comes to, which only reads."""
        ...

    async def write(self, work: Work[T]) -> T:
        """The same in one transaction, which is on the disk when this returns."""
        ...


def ask(text: str, *args: object) -> Steps[Sequence[Row]]:
    """The rows of a statement."""
    return (yield Query(text, args))


def first(text: str, *args: object) -> Steps[Row | None]:
    """The first row of a statement; None where it has none."""
    rows = yield Query(text, args)
    return rows[0] if rows else None


def places(count: int, *, begin: int = 1) -> str:
    """`$1, $2, ...` for so many values."""
    return ", ".join(f"${place}" for place in range(begin, begin + count))
