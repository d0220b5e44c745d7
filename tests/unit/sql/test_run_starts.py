"""Statements that start runs of workflows."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from uuid import UUID

from taskmq.contracts.jobs import NewRun, StartedRun
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.validation import validate_workflow
from taskmq_sql.runs.starts import start
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.runner import drive
from taskmq_sql.steps import Steps


def _start(runs: Sequence[NewRun], statements: list[str]) -> Steps[list[StartedRun]]:
    """Start runs, and note the statements."""
    steps = start(runs)
    try:
        query = next(steps)
        while True:
            statements.append(query.text)
            query = steps.send((yield query))
    except StopIteration as end:
        started: list[StartedRun] = end.value
        return started


def _count_statements(count: int) -> int:
    """Start runs of one content; return the number of statements."""
    content, _ = validate_workflow({"steps": {"s": {"task": "t"}}})
    assert content is not None
    text = encode_workflow(content)[1]
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        runs = [NewRun(id=str(UUID(int=number)), content=text) for number in range(1, count + 1)]
        started = drive(Transaction(connection, Names(), 7), _start(runs, statements))
        assert connection.execute("select count(*) from run").fetchone() == (count,)
    assert all(each.is_new for each in started)
    return len(statements)


def test_any_number_of_runs_of_one_content_starts_with_the_same_statements() -> None:
    assert _count_statements(300) == _count_statements(1)
