"""A transaction ends with its turn, so that other users of the file never wait for a long queue of works."""

import asyncio
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import NewJob
from taskmq.model.envelope import new_job_id
from taskmq_embedded.work import Care
from taskmq_sql import open_job_store
from tests.unit.embedded.kit import add_note, count_notes, thread_on

pytestmark = pytest.mark.real_time


async def test_queued_works_are_committed_turn_by_turn(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    # Each work is longer than the turn.
    thread = thread_on(path, turn=0)
    seen: list[int] = []

    def add(connection: sqlite3.Connection, text: str) -> None:
        with closing(sqlite3.connect(path)) as other:
            seen.append(count_notes(other))
        add_note(connection, text)

    await asyncio.gather(*(thread.call(partial(add, text=f"{number}"), care=Care.DURABLE) for number in range(5)))

    assert seen == [0, 1, 2, 3, 4]
    await thread.aclose()


async def test_an_answer_does_not_wait_for_later_transactions(tmp_path: Path) -> None:
    thread = thread_on(tmp_path / "notes.db", turn=0)
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_first(connection: sqlite3.Connection) -> int:
        # It is in the same hand-over and would have to wait for this one.
        asyncio.run_coroutine_threadsafe(heard.wait(), loop).result(20)
        return count_notes(connection)

    async def first() -> None:
        await thread.call(partial(add_note, text="first"), care=Care.DURABLE)
        heard.set()

    _, found = await asyncio.gather(first(), thread.call(wait_for_the_first, care=Care.DURABLE))

    assert found == 1
    await thread.aclose()


async def test_a_failing_work_does_not_affect_its_turn_or_the_next_one(tmp_path: Path) -> None:
    for turn in (0.0, 20.0):
        thread = thread_on(tmp_path / f"{turn}.db", turn=turn)
        texts = ["a", "b", "a", "c", "d"]
        calls = [thread.call(partial(add_note, text=text), care=Care.DURABLE) for text in texts]

        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [
            type(None),
            type(None),
            sqlite3.IntegrityError,
            type(None),
            type(None),
        ]
        assert await thread.call(count_notes, care=Care.READ) == 4
        await thread.aclose()


async def test_sets_of_several_callers_share_calls_of_some_hundred_items(tmp_path: Path) -> None:
    thread = thread_on(tmp_path / "notes.db", turn=20)
    sizes: list[int] = []

    def add_all(connection: sqlite3.Connection, items: Sequence[str]) -> list[str]:
        sizes.append(len(items))
        connection.executemany("INSERT INTO note VALUES (?)", [(item,) for item in items])
        return [item.upper() for item in items]

    lots = [[f"{lot}-{number}" for number in range(200)] for lot in "abcd"]
    answers = await asyncio.gather(*(thread.add(add_all, lot, care=Care.DURABLE) for lot in lots))

    assert answers == [[item.upper() for item in lot] for lot in lots]
    assert sizes == [400, 400]
    await thread.aclose()


async def test_a_lease_is_renewed_during_a_bulk_write_of_another_process(tmp_path: Path) -> None:
    """The bulk never releases the file voluntarily: it restarts until the lease was renewed."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    holder, sender = (open_job_store(url, BrokerOptions(name=name)) for name in ("holder", "sender"))
    leases = holder.dispatching.leases
    token = await leases.acquire("slot:1", owner="holder", seconds=60)
    assert isinstance(token, int)
    renewed = 0
    is_done = asyncio.Event()

    async def send() -> None:
        while not is_done.is_set():
            await sender.submit([_job() for _ in range(400)])

    async def renew() -> None:
        nonlocal renewed
        for _ in range(20):
            renewed += await leases.renew("slot:1", token=token, seconds=60)
        is_done.set()

    async with asyncio.timeout(60):
        await asyncio.gather(renew(), *(send() for _ in range(6)))

    assert renewed == 20
    assert await holder.count_jobs() >= 6 * 400
    await holder.aclose()
    await sender.aclose()


def _job() -> NewJob:
    return NewJob(
        id=new_job_id(1_800_000_000_000, secrets.token_bytes(10)), task="shop.pay", queue="work", body=b"{}"
    )
