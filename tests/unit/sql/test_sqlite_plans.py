"""Query plans of SQLite statements that run while schedules fire: none scans a whole table."""

import sqlite3
from contextlib import closing

import pytest

from taskmq_sql.sqlite import firings
from taskmq_sql.sqlite.file.schema import JOB_STORE

_STATEMENTS = {
    "take out": firings._TAKE_OUT,
    "due": firings._DUE,
    "turn": firings._TURN.replace("@rows", "(?, ?, ?), (?, ?, ?)"),
    "versions": firings._VERSIONS.replace("@values", "?, ?"),
}


@pytest.mark.parametrize("name", _STATEMENTS)
def test_a_firing_never_scans_the_whole_table_of_schedules(name: str) -> None:
    statement = _STATEMENTS[name]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (0,) * statement.count("?")).fetchall()

    steps = [step[3] for step in plan]
    assert not any(step.startswith(("SCAN schedule", "SCAN schedule_due", "SCAN occurrence")) for step in steps), (
        steps
    )
    assert any("SEARCH schedule" in step for step in steps), steps
