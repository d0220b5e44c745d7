import sqlite3
from contextlib import closing
from pathlib import Path

from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.model.topology import WorkQueue
from taskmq_local import open_local_broker, open_local_state
from taskmq_local.database.schema import SCHEMA_VERSION, open_connection
from tests.unit.local.kit import run


def tables_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


_FIRST = (
    "queues",
    "messages",
    "ready",
    "leases",
    "delayed",
    "owners",
    "consumers",
    "counters",
    "results",
    "occurrences",
)


def make_version_1(path: Path) -> None:
    """What taskmq 0.1 wrote: today's file without what came later."""
    with closing(open_connection(path, patience=5)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table not in _FIRST and not table.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {table}")
        connection.execute("CREATE TABLE occurrences (id TEXT PRIMARY KEY, expires INTEGER NOT NULL)")
        connection.execute("DELETE FROM counters WHERE name != 'message'")
        connection.execute("ALTER TABLE results DROP COLUMN remembered")
        connection.execute("PRAGMA user_version = 1")


def test_a_file_of_version_1_is_upgraded_by_whoever_opens_it_first(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh" / "taskmq.db", tmp_path / "old" / "taskmq.db"
    open_connection(fresh, patience=5).close()
    make_version_1(old)
    assert tables_of(old) != tables_of(fresh)

    with closing(open_connection(old, patience=5)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION

    assert tables_of(old) == tables_of(fresh)


def test_what_a_file_of_version_1_holds_survives_the_upgrade(tmp_path: Path) -> None:
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
    make_version_1(tmp_path / "taskmq.db")

    run(look())
