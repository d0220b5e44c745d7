"""Statements over many rows at a time.

Each step of a statement releases the GIL and has to reacquire it, which takes up to 5 ms while the event loop is
busy. So hundreds of rows are written by one statement with the rows as `VALUES`, not by one statement per row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

_CHUNK: Final = 100


def run_each(connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run the statement with the rows in place of `@rows`."""
    for part in _parts(rows):
        connection.execute(_with_rows(statement, len(part), len(part[0])), list(chain.from_iterable(part)))


def in_each(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> None:
    """Run the statement with the values in place of `@values`."""
    for part in _parts(values):
        connection.execute(_with_values(statement, len(part)), part)


def select_each(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    """Return the rows of the statement with the values in place of `@values`."""
    found: list[Any] = []
    for part in _parts(values):
        found += connection.execute(_with_values(statement, len(part)), part).fetchall()
    return found


def select_among(connection: sqlite3.Connection, statement: str, values: Sequence[int], *more: Any) -> list[int]:
    """Return the values for which the statement's condition holds, with the values in place of `@rows`."""
    found = connection.execute(_with_rows(statement, len(values), 1), (*values, *more)).fetchall()
    return [value for (value,) in found]


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


# Few statements, with up to a hundred lengths each.
@cache
def _with_rows(statement: str, count: int, width: int) -> str:
    row = f"({','.join('?' * width)})"
    return statement.replace("@rows", ",".join([row] * count))


@cache
def _with_values(statement: str, count: int) -> str:
    return statement.replace("@values", ",".join("?" * count))
