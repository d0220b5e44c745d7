import sqlite3

from taskmq.contracts.stores import RateDemand
from taskmq.testing.fake_clock import FakeClock
from taskmq_local.memory.store import OpenState
from taskmq_local.memory.tables import MemoryDatabase, MemoryTables
from taskmq_local.state.limits import LocalLimits


def _count_limits(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT count(*) FROM limits").fetchone()[0]
    return count


async def test_unused_limits_are_deleted() -> None:
    tables, clock = MemoryTables(), FakeClock()
    limits = LocalLimits(MemoryDatabase(tables, OpenState("memory://")), clock)

    for number in range(2000):
        demand = RateDemand(key=f"{number}", interval=1)
        await limits.acquire("job", [demand], hold="h", seconds=1, patience=0)
        clock.advance(10)

    assert tables.ask(_count_limits) < 800
