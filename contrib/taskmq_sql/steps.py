"""Calls as generators of statements, which asyncpg and sqlite3 run.

A call yields statements and receives their rows, so each call is written once for both databases. The statements are
PostgreSQL's; the SQLite driver translates the differences: schema, casts, lists, row locks and the clock.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial, wraps
from types import CoroutineType
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast
from uuid import UUID

from taskmq.contracts.jobs import DispatchBatch, NewJob, PartitionHold, Submitted

P = ParamSpec("P")
S = TypeVar("S", bound="SqlCalls")
T = TypeVar("T")

Row = Sequence[Any]
NameKind = Literal["tenant", "queue", "task", "worker"]


class Query(NamedTuple):
    """A statement and its values.

    A list is written as `= any($1::text[])`. SQLite runs long lists in parts, so such a statement has no order and no
    limit. Rows to insert are written as `@rows(int, text)`, with the column types; `args` holds the rows then.
    """

    text: str
    args: tuple[object, ...] = ()


Steps = Generator[Query, Sequence[Row], T]
"""A call: yields statements and receives their rows."""
Work = Callable[[], Steps[T]]
"""Starts a call, again from the beginning if its transaction must be repeated."""

LOCK: Final = Query("lock")
"""Wait for concurrent changes of accounts, and block them until the transaction ends; SQLite does not need it."""
LOCK_NAMES: Final = "lock names"
LIMIT_WAITS: Final = Query("limit waits")
"""Let later statements of the transaction fail if they wait for a lock for 100 ms; SQLite does not need it."""
CLOCK: Final = Query("clock")
"""The store's time in ms, the same for the whole call."""
SUBMIT: Final = "submit"
CANCEL: Final = "cancel"
QUEUED: Final = "queued"
"""Query for the number of waiting jobs of a tenant, with its name and the largest number to return."""
TOGETHER: Final = "together"
GUARDED: Final = "guarded"
NUMBERED: Final = "numbered"
NAMED: Final = "named"
NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
"""The time (ms) within a statement. After waiting for a row, it is the later time. On SQLite it equals `CLOCK`."""


class JobId(str):
    """A job id as a value of a statement: a UUID on PostgreSQL, bytes on SQLite."""

    __slots__ = ()


class Runner(Protocol):
    """Runs calls on a database. If a call raises one of taskmq's errors, its transaction rolls back."""

    async def read(self, work: Work[T]) -> T:
        """Return the result of a call that only reads."""
        ...

    async def show(self, work: Work[T]) -> T:
        """Return the result of a read that nothing decides on. Within `accept_age`, a replica may answer it."""
        ...

    async def write(self, work: Work[T], *, is_lasting: bool = True) -> T:
        """Return the result of a call that runs in one transaction.

        Args:
            is_lasting: the transaction is durable on return; otherwise a power failure may undo it.
        """
        ...

    async def change(self, work: Work[T], *, is_lasting: bool = True) -> T:
        """Return the result of a call that makes one change, without a transaction around its statements.

        Args:
            is_lasting: the change is durable on return; otherwise a power failure may undo it.
        """
        ...


class SqlCalls:
    """Calls about one kind of object, on either database.

    A method under `read_call`, `write_call` or `change_call` is written as steps; its callers await the result.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner


_StepMethod = Callable[Concatenate[S, P], Steps[T]]
# basedpyright takes the result of an async function for a CoroutineType, mypy for a Coroutine.
_Method: TypeAlias = "Callable[Concatenate[S, P], CoroutineType[Any, Any, T]]"


def read_call(method: _StepMethod[S, P, T]) -> "_Method[S, P, T]":
    """Run the steps of a method by `Runner.read`."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.runner.read(partial(method, self, *args, **kwargs))

    return cast("_Method[S, P, T]", call)


def write_call(method: _StepMethod[S, P, T]) -> "_Method[S, P, T]":
    """Run the steps of a method by `Runner.write`, in one durable transaction."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.runner.write(partial(method, self, *args, **kwargs))

    return cast("_Method[S, P, T]", call)


def change_call(method: _StepMethod[S, P, T]) -> "_Method[S, P, T]":
    """Run the steps of a method by `Runner.change`: they make one durable change."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.runner.change(partial(method, self, *args, **kwargs))

    return cast("_Method[S, P, T]", call)


def ask(text: str, *args: object) -> Steps[Sequence[Row]]:
    """Return the rows of a statement."""
    return (yield Query(text, args))


def first(text: str, *args: object) -> Steps[Row | None]:
    """Return the first row of a statement; None if there is none."""
    rows = yield Query(text, args)
    return rows[0] if rows else None


def insert(text: str, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
    """Run a statement with the rows in place of `@rows(...)`; return the rows that it returns."""
    return (yield Query(text, tuple(rows))) if rows else ()


def together(changes: Iterable[Query]) -> Steps[None]:
    """Run statements that change different rows, in any order. On PostgreSQL they take one round trip."""
    if wanted := tuple(each for each in changes if each.args):
        yield Query(TOGETHER, wanted)


def change_guarded(
    guard: Query, changes: Iterable[Query], jobs: Sequence[NewJob], hold: PartitionHold | None
) -> Steps[tuple[list[Submitted] | None, DispatchBatch | None, str]]:
    """Run statements that change different rows, and submit plain new jobs; return the results in any order.

    On PostgreSQL they are one statement, without a transaction around it. If the first one changes no row, nothing is
    changed; returns None in place of the results. The last returned value is the mark of the changed rows (`xmin`).

    Args:
        guard: the first one.
        jobs: jobs with a row and nothing else to write, see `is_plain`.
        hold: the partition that may dispatch the only job at once; if it was dispatched, its batch is returned, too.
    """
    wanted = tuple(each for each in changes if each.args)
    ((answers, batch, mark),) = yield Query(GUARDED, (guard, wanted, tuple(jobs), hold))
    return cast("list[Submitted] | None", answers), cast("DispatchBatch | None", batch), str(mark)


def clock() -> Steps[int]:
    """Return the store's time in ms, the same for the whole call."""
    ((now,),) = yield CLOCK
    return int(now)


def lock(names: Iterable[str]) -> Steps[None]:
    """Wait for transactions that hold one of these names, and hold them until this one ends; as `LOCK`."""
    yield Query(LOCK_NAMES, (list(names),))


def find_numbers(kind: NameKind, names: Iterable[str]) -> Steps[dict[str, int]]:
    """Return the numbers of the names that have one."""
    rows = yield Query(NUMBERED, (kind, False, *names))
    return dict(cast("Sequence[tuple[str, int]]", rows))


def make_number(kind: NameKind, name: str) -> Steps[int]:
    """Return the number of a name; assign one if it has none."""
    ((_, number),) = yield Query(NUMBERED, (kind, True, name))
    return int(number)


def names_of(kind: NameKind, numbers: Iterable[int | None]) -> Steps[dict[int | None, str]]:
    """Return the names of the numbers, with "" for None."""
    wanted = {each for each in numbers if each is not None}
    rows = yield Query(NAMED, (kind, *wanted))
    return {None: "", **dict(cast("Sequence[tuple[int, str]]", rows))}


def job_id(value: Any) -> str:
    """Return the job id from a row as text."""
    return str(UUID(bytes=value)) if isinstance(value, bytes) else str(value)


def submit_jobs(jobs: Sequence[NewJob]) -> Steps[list[Submitted]]:
    """Submit jobs, whatever the quotas; return the results in order."""
    rows = (yield Query(SUBMIT, tuple(jobs))) if jobs else ()
    return [row[0] for row in rows]


def cancel_jobs(ids: Iterable[str], reason: str) -> Steps[list[str]]:
    """Cancel jobs that have not ended; return the ids of those whose workers were asked to stop them."""
    rows = yield Query(CANCEL, (reason, *sorted(ids)))
    return [row[0] for row in rows]


def placeholders(count: int, *, begin: int = 1) -> str:
    """Return `$1, $2, ...` for `count` values."""
    return ", ".join(f"${index}" for index in range(begin, begin + count))
