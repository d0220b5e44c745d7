"""A process forks only while no other thread of it is in SQLite."""

import asyncio
import os
import sqlite3
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from taskmq_embedded.memory import MEMORY, MemoryThread
from taskmq_embedded.work import Care
from tests.unit.embedded.kit import NOTES, thread_on

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

_LONG = "WITH RECURSIVE n(x) AS (SELECT enter() UNION ALL SELECT 1 FROM n LIMIT 500000) SELECT count(*) FROM n"


class _LongQuery:
    """A query that another thread runs while this one forks."""

    def __init__(self) -> None:
        self._has_begun = threading.Event()
        self._has_ended = False

    def run(self, connection: sqlite3.Connection) -> None:
        connection.create_function("enter", 0, self._has_begun.set)
        connection.execute(_LONG).fetchone()
        self._has_ended = True

    def ended_before_fork(self) -> bool:
        """Fork once the query has begun; return whether it had ended in the child."""
        self._has_begun.wait()
        if (child := os.fork()) == 0:
            os._exit(0 if self._has_ended else 1)
        return os.waitpid(child, 0)[1] == 0


async def test_a_fork_waits_for_a_query_of_another_thread_in_a_file(tmp_path: Path) -> None:
    thread, query = thread_on(tmp_path / "notes"), _LongQuery()
    running = asyncio.create_task(thread.call(query.run, care=Care.READ))

    assert await asyncio.to_thread(query.ended_before_fork)
    await running
    await thread.aclose()


def test_a_fork_waits_for_a_query_of_another_thread_in_memory() -> None:
    thread = MemoryThread(Path(f"{MEMORY}fork"), NOTES, nullcontext[sqlite3.Connection])
    query = _LongQuery()
    other = threading.Thread(target=thread.ask, args=(query.run,))
    other.start()

    assert query.ended_before_fork()
    other.join()
