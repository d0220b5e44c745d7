"""Statements over many rows at a time.

Each step of a statement lets go of the interpreter's lock and has to get it back, which takes up to 5 ms while the
event loop is busy. So what is written by the hundred is one statement with its rows as `VALUES`, and not a statement
per row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

__all__ = ["in_each", "run_each", "select_among", "select_each"]

_CHUNK: Final = 100


def run_each(connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run the statement over the rows, which stand where it says `@rows`."""
    for part in _parts(rows):
        connection.execute(_with_rows(statement, len(part), len(part[0])), list(chain.from_iterable(part)))


def in_each(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> None:
    """Run the statement over the values, which stand where it says `@values`."""
    for part in _parts(values):
        connection.execute(_with_values(statement, len(part)), part)


def select_each(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    """The rows that the statement finds for the values, which stand where it says `@values`."""
    found: list[Any] = []
    for part in _parts(values):
        found += connection.execute(_with_values(statement, len(part)), part).fetchall()
    return found


def select_among(connection: sqlite3.Connection, statement: str, values: Sequence[int], *more: Any) -> list[int]:
    """Choose the values, which stand where it says `@rows`, for which the condition of the statement holds."""
    found = connection.execute(_with_rows(statement, len(values), 1), (*values, *more)).fetchall()
    return [value for (value,) in found]


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


# Few statements, of up to a hundred lengths each.
@cache
def _with_rows(statement: str, count: int, width: int) -> str:
    row = f"({','.join('?' * width)})"
    return statement.replace("@rows", ",".join([row] * count))


@cache
def _with_values(statement: str, count: int) -> str:
    return statement.replace("@values", ",".join("?" * count))
