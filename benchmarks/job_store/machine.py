"""Speed of the machine beside each row, so that the figures of two days can be compared."""

import time
from typing import Final

from benchmarks.job_store.figures import Figures
from tests.servers import PostgreSQL

_STEPS: Final = 200_000
_COMMITS: Final = 100
# The message makes each transaction write to the log, without a table.
_COMMIT: Final = f"""
do $$ begin
    for number in 1..{_COMMITS} loop
        perform pg_logical_emit_message(true, 'benchmark', 'x');
        commit;
    end loop;
end $$"""


def machine(postgres: PostgreSQL) -> Figures:
    """Measure a fixed calculation in Python and a commit of a transaction that wrote to the log."""
    return {"machine: calculation, ms": _calculation(), "machine: commit, ms": _commit(postgres)}


def _calculation() -> float:
    """Return the milliseconds of 200,000 steps in Python, the shortest of three times."""
    return min(_once() for _ in range(3)) * 1e3


def _once() -> float:
    began, total = time.perf_counter(), 0
    for number in range(_STEPS):
        total += number % 7
    return time.perf_counter() - began


def _commit(postgres: PostgreSQL) -> float:
    """Return the milliseconds of one commit: the mean of 100, with the start of a connection subtracted."""
    times: list[float] = []
    for statement in ("select", _COMMIT):
        began = time.perf_counter()
        postgres.sql(statement)
        times.append(time.perf_counter() - began)
    return (times[1] - times[0]) / _COMMITS * 1e3
