import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.model.topology import WorkQueue
from taskmq_local import open_local_broker, open_local_state
from taskmq_local.database.schema import SCHEMA_VERSION, SchemaMismatch, open_connection
from tests.unit.local.kit import run


def tables_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


# A version that does not exist yet.
_NEXT_STEP = "CREATE TABLE flavours (name TEXT PRIMARY KEY) WITHOUT ROWID"


def test_a_file_that_is_behind_is_upgraded_by_whoever_opens_it_first(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh" / "taskmq.db", tmp_path / "old" / "taskmq.db"
    open_connection(fresh, patience=5, later=[_NEXT_STEP]).close()
    open_connection(old, patience=5).close()
    assert tables_of(old) != tables_of(fresh)

    for _ in range(2):
        with closing(open_connection(old, patience=5, later=[_NEXT_STEP])) as connection:
            assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION + 1

    assert tables_of(old) == tables_of(fresh)


def test_a_file_of_a_development_version_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "taskmq.db"
    with closing(open_connection(path, patience=5)) as connection:
        connection.execute("PRAGMA user_version = 10")
    before = tables_of(path)

    with pytest.raises(SchemaMismatch, match=r"schema 10, which a development version .* name another directory"):
        open_connection(path, patience=5)

    assert tables_of(path) == before


def test_what_a_file_holds_survives_an_upgrade(tmp_path: Path) -> None:
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
        async with broker.peek("q", limit=10) as deliveries:
            assert [delivery.message_id for delivery in deliveries] == ["a"]
        await broker.aclose()

    run(fill())
    with closing(open_connection(tmp_path / "taskmq.db", patience=5, later=[_NEXT_STEP])) as connection:
        # Or this taskmq would refuse it as a later one's.
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    run(look())
