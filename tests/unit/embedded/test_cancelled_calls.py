"""A read of a SQLite file without a waiting caller is interrupted and does not affect other reads."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from taskmq.contracts.system_clock import SystemClock
from taskmq_embedded.work import Care
from taskmq_sql.sqlite.file.thread import FileThread, open_threads
from taskmq_sql.sqlite.file.transaction import Transaction


@asynccontextmanager
async def _thread(path: Path) -> AsyncGenerator[FileThread]:
    opened, other = open_threads(path, SystemClock(), synchronous="NORMAL", patience=1.0)
    try:
        yield opened
    finally:
        await opened.aclose()
        await other.aclose()


def _without_end(transaction: Transaction) -> object:
    return transaction.connection.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    ).fetchone()


def _seven(transaction: Transaction) -> object:
    return transaction.connection.execute("select 7").fetchone()[0]


@pytest.mark.real_time
@pytest.mark.parametrize("mates", [0, 3])
async def test_a_cancelled_read_is_interrupted_and_no_other_read_is(tmp_path: Path, mates: int) -> None:
    async with _thread(tmp_path / "jobs.db") as thread, asyncio.timeout(20):
        first = [asyncio.create_task(thread.call(_seven, care=Care.READ)) for _ in range(mates)]
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def endless(transaction: Transaction) -> object:
            loop.call_soon_threadsafe(begun.set)
            return _without_end(transaction)

        reading = asyncio.create_task(thread.call(endless, care=Care.READ))
        # In one transaction with it.
        last = [asyncio.create_task(thread.call(_seven, care=Care.READ)) for _ in range(mates)]
        await begun.wait()

        reading.cancel()

        assert await asyncio.gather(*first, *last) == [7] * 2 * mates
        assert await thread.call(_seven, care=Care.READ) == 7


@pytest.mark.real_time
async def test_a_write_completes_even_if_its_caller_is_gone(tmp_path: Path) -> None:
    async with _thread(tmp_path / "jobs.db") as thread, asyncio.timeout(20):
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def write(transaction: Transaction) -> None:
            loop.call_soon_threadsafe(begun.set)
            transaction.connection.execute(
                "insert into name (name) with recursive n(i) as (select 1 union all select i + 1 from n where "
                "i < 2000000) select 'n' || count(*) from n"
            )

        writing = asyncio.create_task(thread.call(write, care=Care.DURABLE))
        await begun.wait()
        writing.cancel()

        found = await thread.call(
            lambda one: one.connection.execute("select name from name where name = 'n2000000'").fetchall(),
            care=Care.READ,
        )
        assert len(found) == 1
