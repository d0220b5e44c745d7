"""Runner of shared calls (`taskmq_sql.steps`) in transactions of sqlite3."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from taskmq.model.units import storable
from taskmq_embedded.work import Care
from taskmq_sql.sqlite.file.thread import FileThread
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.steps import (
    CLOCK,
    LIMIT_WAITS,
    LOCK,
    LOCK_NAMES,
    NAMED,
    NOW,
    NUMBERED,
    TOGETHER,
    JobId,
    Query,
    Row,
    Steps,
    Work,
)

T = TypeVar("T")

# SQLite limits the values of a statement: longer lists and rows are split.
_LISTED: Final = 512
_TOGETHER: Final = 100
_LIST: Final = re.compile(r"= any\(\$(\d+)(?:::\w+\[\])*\)")
_ROWS: Final = re.compile(r"@rows\([^)]*\)")
_CASTS_AND_LOCKS: Final = re.compile(
    r"::\w+(?:\[\])?| for (?:no key update|key share|update|share)(?: skip locked)?| collate \"C\""
)
_ARRAY: Final = re.compile(r"= any\(array\((.*?)\)\)", re.DOTALL)
# A row does not change between two statements of a call, so that all versions of a row (`xmin`) are equal.
_WORDS: Final = {NOW: "$now", "taskmq.now_ms()": "$now", "taskmq.": "", "ctid": "rowid", "xmin": "1"}

Answers = Mapping[str, Callable[[Transaction, Sequence[Any]], Sequence[Row]]]
"""Answers to queries that are no statements, by their text."""


class SqliteRunner:
    """A `Runner` on the threads of a file: one writes at a time, so no locks are needed.

    Args:
        answers: to the queries about jobs in the calls that this runner runs.
    """

    def __init__(self, writer: FileThread, reader: FileThread, answers: Answers = MappingProxyType({})) -> None:
        self._writer = writer
        self._reader = reader
        self._answers = answers

    async def read(self, work: Work[T]) -> T:
        return await self._reader.call(lambda transaction: drive(transaction, work()), care=Care.READ)

    async def show(self, work: Work[T]) -> T:
        return await self.read(work)

    async def write(self, work: Work[T], *, is_lasting: bool = True) -> T:
        return await self.change(work, is_lasting=is_lasting)

    async def change(self, work: Work[T], *, is_lasting: bool = True) -> T:
        care = Care.DURABLE if is_lasting else Care.LOOSE
        return await self._writer.call(lambda transaction: drive(transaction, work(), self._answers), care=care)


def drive(transaction: Transaction, steps: Steps[T], answers: Answers = MappingProxyType({})) -> T:
    """Run a call in a transaction; return its result.

    Args:
        answers: to queries about jobs, for calls that have some.
    """
    try:
        query = next(steps)
        while True:
            answer = answers.get(query.text)
            query = steps.send(fetch(transaction, query) if answer is None else answer(transaction, query.args))
    except StopIteration as end:
        result: T = end.value
        return result


def fetch(transaction: Transaction, query: Query) -> Sequence[Row]:
    """Run a query; return its rows."""
    connection, names, args = transaction.connection, transaction.names, query.args
    if query in (LOCK, LIMIT_WAITS) or query.text == LOCK_NAMES:
        return ()
    if query is CLOCK:
        return [(transaction.now,)]
    if query.text == TOGETHER:
        for each in cast("Sequence[Query]", args):
            fetch(transaction, each)
        return ()
    if query.text == NUMBERED:
        find = names.id if args[1] else names.find
        return [(name, number) for name in args[2:] if (number := find(connection, str(name))) is not None]
    if query.text == NAMED:
        return [(number, names.name(connection, number)) for number in args[1:] if isinstance(number, int)]
    statement = _translate(query.text)
    found: list[Row] = []
    for text, values in _parts(statement, query.args, transaction.now):
        found += connection.execute(text, values).fetchall()
    return found


def _parts(text: str, args: Sequence[Any], now: int) -> Iterator[tuple[str, Any]]:
    """Yield the statement with its values, several times if it has too many values or rows for one."""
    if "@rows" in text:
        for begin in range(0, len(args), _TOGETHER):
            part = args[begin : begin + _TOGETHER]
            yield _with_rows(text, len(part), len(part[0])), [_value(each) for row in part for each in row]
        return
    values = {str(number): _value(each) for number, each in enumerate(args, 1) if not isinstance(each, list)}
    values["now"] = now
    lists = {number: cast("list[object]", each) for number, each in enumerate(args, 1) if isinstance(each, list)}
    if not lists:
        yield text, values
        return
    ((number, elements),) = lists.items()
    for begin in range(0, max(len(elements), 1), _LISTED):
        part = [_value(each) for each in elements[begin : begin + _LISTED]]
        # Padded to a power of two, which keeps the number of distinct statements small.
        part += part[-1:] * ((1 << (len(part) - 1).bit_length()) - len(part) if part else 0)
        yield _with_list(text, number, len(part)), values | {f"{number}_{n}": each for n, each in enumerate(part)}


def _value(value: object) -> object:
    if isinstance(value, JobId):
        return UUID(value).bytes
    return storable(value) if isinstance(value, str) else value


@cache
def _translate(text: str) -> str:
    """Translate a statement of PostgreSQL to SQLite."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    text = _ROWS.sub("values @rows", text)
    return _CASTS_AND_LOCKS.sub("", _LIST.sub(r"in (@\1)", _ARRAY.sub(r"in (\1)", text)))


@cache
def _with_rows(text: str, count: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return text.replace("@rows", ", ".join([row] * count))


@cache
def _with_list(text: str, number: int, count: int) -> str:
    return text.replace(f"@{number}", ", ".join(f"${number}_{n}" for n in range(count)))
