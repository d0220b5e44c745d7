import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from taskmq_embedded.work import Care, FileFailure
from taskmq_local.database.database import Database
from tests.unit.local.kit import PATIENCE, run

pytestmark = pytest.mark.real_time


def count(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM queues WHERE name LIKE 'q%'").fetchone()[0]
    return found


class Adding:
    """A work that adds a queue."""

    care = Care.DURABLE
    wakeups = ()

    def __init__(self, name: str) -> None:
        self.outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._name = name

    def seal(self) -> None: ...

    def run(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO queues (name) VALUES (?)", (self._name,))

    def end(self, error: Exception | None) -> None:
        self.outcome.set_result(error)


async def test_a_failing_work_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")
    works = [Adding("q1"), Adding("q2"), Adding("q1"), Adding("q3")]
    for work in works:
        database.submit(work)

    outcomes = await asyncio.gather(*(work.outcome for work in works))

    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), sqlite3.IntegrityError, type(None)]
    assert await database.call(count, care=Care.READ) == 3
    await database.aclose(within=PATIENCE)


async def test_works_of_one_loop_iteration_share_a_transaction(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")
    commits: list[int] = []
    works = [Adding(f"q{number}") for number in range(50)]
    for work in works:
        database.submit(work)

    def note(connection: sqlite3.Connection) -> None:
        # All of them are visible inside the transaction and none outside.
        other = sqlite3.connect(tmp_path / "taskmq.db")
        commits.extend([count(connection), count(other)])
        other.close()

    await database.call(note, care=Care.DURABLE)

    assert commits == [50, 0]
    assert await database.call(count, care=Care.READ) == 50
    await database.aclose(within=PATIENCE)


async def test_a_work_whose_callback_fails_does_not_keep_the_others_from_theirs(tmp_path: Path) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    database = Database(tmp_path / "taskmq.db", name="test")
    bad, good = Adding("q1"), Adding("q2")
    bad.outcome.cancel()
    database.submit(bad)
    database.submit(good)

    assert await good.outcome is None

    assert [type(error) for error in reported] == [asyncio.InvalidStateError]
    await database.aclose(within=PATIENCE)


async def test_an_abandoned_call_is_not_executed_later(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")
    await database.call(count, care=Care.READ)
    blocker = sqlite3.connect(tmp_path / "taskmq.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    with pytest.raises(FileFailure, match="locked by another process"):
        await database.call(
            lambda connection: connection.execute("INSERT INTO queues (name) VALUES ('q')"),
            care=Care.DURABLE,
            timeout=0.1,
        )
    blocker.execute("ROLLBACK")
    blocker.close()

    assert await database.call(count, care=Care.LOOSE) == 0
    await database.aclose(within=PATIENCE)


async def test_closing_while_the_file_is_locked_ends_all_waiting_calls(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")
    await database.call(count, care=Care.READ)
    blocker = sqlite3.connect(tmp_path / "taskmq.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    threads = threading.active_count()
    first, second = Adding("q1"), Adding("q2")
    database.submit(first)
    await asyncio.sleep(0.02)
    database.submit(second)

    await database.aclose(within=0.05)

    assert isinstance(await first.outcome, FileFailure)
    assert isinstance(await second.outcome, FileFailure)
    assert threading.active_count() == threads - 1
    blocker.close()
    late = Adding("q3")
    database.submit(late)
    assert isinstance(await late.outcome, FileFailure)


async def test_only_writes_that_must_survive_a_power_failure_are_synced(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")

    def synchronous(connection: sqlite3.Connection) -> int:
        level: int = connection.execute("PRAGMA synchronous").fetchone()[0]
        return level

    assert await database.call(synchronous, care=Care.LOOSE) == 1
    assert await database.call(synchronous, care=Care.DURABLE) == 2
    both = [database.post(synchronous, care=care) for care in (Care.LOOSE, Care.DURABLE, Care.READ)]
    assert await asyncio.gather(*both) == [2, 2, 2]
    await database.aclose(within=PATIENCE)


def test_other_loops_write_through_the_shared_connection_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.db"

    async def main() -> None:
        own = Database(path, name="own")
        shared = Database(path, name="shared", is_shared=True)
        elsewhere = Database(tmp_path / "other" / "taskmq.db", name="elsewhere")
        assert own.partner() is own
        await shared.call(count, care=Care.READ)
        assert own.partner() is shared
        assert shared.partner() is shared
        assert elsewhere.partner() is elsewhere

        await asyncio.to_thread(asyncio.run, another_loop())

        await shared.aclose(within=PATIENCE)
        assert own.partner() is own
        await own.aclose(within=PATIENCE)
        await elsewhere.aclose(within=PATIENCE)

    async def another_loop() -> None:
        database = Database(path, name="another")
        assert database.partner() is database
        await database.aclose(within=PATIENCE)

    run(main())


async def test_works_submitted_after_a_commit_share_the_next_transaction(tmp_path: Path) -> None:
    database = Database(tmp_path / "taskmq.db", name="test")
    commits: list[int] = []

    async def chain() -> None:
        """Submit dependent works, one per loop iteration, like a worker with many slots."""
        works: list[Adding] = []
        for number in range(20):
            works.append(Adding(f"q{len(commits)}-{number}"))
            database.submit(works[-1])
            await asyncio.sleep(0)
        await asyncio.gather(*(work.outcome for work in works))
        commits.append(await database.call(count, care=Care.READ))

    first = Adding("first")
    database.submit(first)
    await first.outcome
    told: list[int] = []
    hand_over = database._pass_on

    def count_rows() -> None:
        told.append(len(database._waiting))
        hand_over()

    database._pass_on = count_rows  # type: ignore[method-assign]
    await chain()
    assert max(told) >= 20 - 1
    await database.aclose(within=PATIENCE)
