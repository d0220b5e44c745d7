"""Calls as generators of statements, which asyncpg and sqlite3 run.

A call yields statements and is sent their rows, so that it is written once for both databases. The statements are
PostgreSQL's; the driver of SQLite translates what differs: schema, casts, lists, row locks and the clock.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

__all__ = [
    "CLOCK",
    "LOCK",
    "NAMED",
    "NOW",
    "NUMBERED",
    "JobId",
    "NameKind",
    "Query",
    "Row",
    "Runner",
    "Steps",
    "Work",
    "ask",
    "clock",
    "find_numbers",
    "first",
    "insert",
    "job_id",
    "make_number",
    "names_of",
    "places",
]

T = TypeVar("T")

Row = Sequence[Any]
NameKind = Literal["tenant", "queue", "task", "worker"]


class Query(NamedTuple):
    """A statement and its values.

    A list stands as `= any($1::text[])`. SQLite asks for long lists in parts: such a statement has no order and no
    limit. Rows to insert stand as `@rows(int, text)`, with the types of their columns; they are the values then.
    """

    text: str
    args: tuple[object, ...] = ()


Steps = Generator[Query, Sequence[Row], T]
"""A call: yields statements, is sent their rows."""
Work = Callable[[], Steps[T]]
"""Begins a call; again from the start if its transaction has to begin anew."""

LOCK: Final = Query("lock")
"""Wait until no other change of accounts is under way, until the end of the transaction; SQLite needs none."""
CLOCK: Final = Query("clock")
"""The store's time in ms, the same for the whole call."""
NUMBERED: Final = "numbered"
NAMED: Final = "named"
NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
"""The time (ms) within a statement: after it has waited for a row, it sees the later time. On SQLite as `CLOCK`."""


class JobId(str):
    """A job's id among the values of a statement: PostgreSQL has UUIDs, SQLite their bytes."""

    __slots__ = ()


class Runner(Protocol):
    """Runs calls on a database. What a call raises of taskmq's errors rolls it back."""

    async def read(self, work: Work[T]) -> T:
        """Return the result of a call that only reads."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Return the result of a call in one transaction, which is on the disk then."""
        ...

    async def change(self, work: Work[T], *, is_lasting: bool = True) -> T:
        """Return the result of a call that makes one change, without a transaction around its statements.

        Args:
            is_lasting: the change is on the disk then. Else a power failure may undo it.
        """
        ...


def ask(text: str, *args: object) -> Steps[Sequence[Row]]:
    """Return the rows of a statement."""
    return (yield Query(text, args))


def first(text: str, *args: object) -> Steps[Row | None]:
    """Return the first row of a statement; None if it has none."""
    rows = yield Query(text, args)
    return rows[0] if rows else None


def insert(text: str, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
    """Run a statement over the rows, which stand where it says `@rows(...)`; return what it returns."""
    return (yield Query(text, tuple(rows))) if rows else ()


def clock() -> Steps[int]:
    """Return the store's time in ms, the same for the whole call."""
    ((now,),) = yield CLOCK
    return int(now)


def find_numbers(kind: NameKind, names: Iterable[str]) -> Steps[dict[str, int]]:
    """Return the numbers by which the tables know names, of those that have one."""
    rows = yield Query(NUMBERED, (kind, False, *names))
    return dict(cast("Sequence[tuple[str, int]]", rows))


def make_number(kind: NameKind, name: str) -> Steps[int]:
    """Return the number of a name, which gets one if it has none."""
    ((_, number),) = yield Query(NUMBERED, (kind, True, name))
    return int(number)


def names_of(kind: NameKind, numbers: Iterable[int | None]) -> Steps[dict[int | None, str]]:
    """Return the names of these numbers; that of None is ""."""
    wanted = {each for each in numbers if each is not None}
    rows = yield Query(NAMED, (kind, *wanted))
    return {None: "", **dict(cast("Sequence[tuple[int, str]]", rows))}


def job_id(value: Any) -> str:
    """Return a job's id of a row as text."""
    return str(UUID(bytes=value)) if isinstance(value, bytes) else str(value)


def places(count: int, *, begin: int = 1) -> str:
    """`$1, $2, ...` for so many values."""
    return ", ".join(f"${place}" for place in range(begin, begin + count))
