"""Statements of PostgreSQL, as calls yield them, on SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

import pytest

from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.runner import drive
from taskmq_sql.steps import (
    NOW,
    JobId,
    Steps,
    ask,
    clock,
    find_numbers,
    first,
    insert,
    job_id,
    make_number,
    names_of,
)

_JOB = "01890000-0000-7000-8000-0000000000ff"


@pytest.fixture
def transaction() -> Iterator[Transaction]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table name (id integer primary key, name text not null unique)")
        connection.execute("create table job (id blob primary key, n integer)")
        yield Transaction(connection, Names(), 7)


def _fill(count: int) -> Steps[int]:
    yield from insert(
        "insert into taskmq.job (id, n) @rows(uuid, int)", [(JobId(UUID(int=n)), n) for n in range(count)]
    )
    row = yield from first("select count(*) from taskmq.job")
    assert row is not None
    return int(row[0])


def _find(numbers: list[int], least: int) -> Steps[list[int]]:
    rows = yield from ask("select n from taskmq.job where n = any($2::int[]) and n >= $1::bigint", least, numbers)
    return [row[0] for row in rows]


@pytest.mark.parametrize("count", [0, 1, 99, 100, 1_300])
def test_lists_and_rows_of_any_length_are_queried_in_parts(transaction: Transaction, count: int) -> None:
    assert drive(transaction, _fill(count)) == count

    assert sorted(drive(transaction, _find(list(range(count)), 1))) == list(range(1, count))
    assert drive(transaction, _find([], 0)) == []


def test_a_job_has_its_id_as_bytes_and_is_read_as_text(transaction: Transaction) -> None:
    def work() -> Steps[tuple[object, str]]:
        yield from ask("insert into taskmq.job (id) values ($1)", JobId(_JOB))
        (row,) = yield from ask("select id from taskmq.job where id = any($1::uuid[])", [JobId(_JOB)])
        return row[0], job_id(row[0])

    assert drive(transaction, work()) == (UUID(_JOB).bytes, _JOB)


def test_a_statement_has_the_time_of_its_transaction(transaction: Transaction) -> None:
    def work() -> Steps[tuple[int, int, int]]:
        row = yield from first(f"select taskmq.now_ms(), {NOW}")
        assert row is not None
        return (yield from clock()), row[0], row[1]

    assert drive(transaction, work()) == (7, 7, 7)


def test_names_get_numbers_once_they_are_created(transaction: Transaction) -> None:
    def work() -> Steps[tuple[int, dict[str, int], dict[int | None, str]]]:
        number = yield from make_number("tenant", "shop")
        return (
            number,
            (yield from find_numbers("tenant", ["shop", "bank"])),
            (yield from names_of("tenant", [number])),
        )

    number, numbers, names = drive(transaction, work())

    assert numbers == {"shop": number}
    assert names == {None: "", number: "shop"}
