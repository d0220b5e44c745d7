import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite.case import peek
from taskmq_embedded.file_kind import open_file
from taskmq_embedded.work import FileFailure
from taskmq_local import open_local_broker, open_local_state
from taskmq_local.database.schema import QUEUE_FILE
from tests.unit.local.kit import run


def tables_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


# A version that does not exist yet.
_LATER = replace(QUEUE_FILE, steps=("CREATE TABLE flavours (name TEXT PRIMARY KEY) WITHOUT ROWID",))


def test_an_outdated_file_is_upgraded_by_the_first_process_that_opens_it(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh" / "taskmq.db", tmp_path / "old" / "taskmq.db"
    open_file(fresh, _LATER).close()
    open_file(old, QUEUE_FILE).close()
    assert tables_of(old) != tables_of(fresh)

    for _ in range(2):
        with closing(open_file(old, _LATER)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone()[0] == _LATER.version

    assert tables_of(old) == tables_of(fresh)


def test_a_file_of_a_development_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.db"
    with closing(open_file(path, QUEUE_FILE)) as connection:
        connection.execute("PRAGMA user_version = 10")
    before = tables_of(path)

    with pytest.raises(FileFailure, match=r"tables of version 10, which a development version .* name another path"):
        open_file(path, QUEUE_FILE)

    assert tables_of(path) == before


def test_the_contents_of_a_file_survive_an_upgrade(tmp_path: Path) -> None:
    url = f"local://{tmp_path}"
    message = Outgoing(queue="q", body=b"{}", content_type="application/json", job_id="a", task="t")

    async def fill() -> None:
        broker = open_local_broker(url, BrokerOptions())
        await broker.declare([WorkQueue("q")])
        await broker.publish(message, timeout=10)
        await broker.aclose()

    async def look() -> None:
        state = open_local_state(url, BrokerOptions())
        assert await state.starts.begin("a", ttl=60) == 1
        await state.aclose()
        broker = open_local_broker(url, BrokerOptions())
        async with peek(broker, "q", limit=10) as deliveries:
            assert [delivery.message_id for delivery in deliveries] == ["a"]
        await broker.aclose()

    run(fill())
    with closing(open_file(tmp_path / "taskmq.db", _LATER)) as connection:
        # Otherwise this taskmq would refuse it as a later version.
        connection.execute(f"PRAGMA user_version = {QUEUE_FILE.version}")

    run(look())
