"""How logs ask this database about jobs."""

from collections.abc import Sequence
from typing import Final

from taskmq_sql.history import LiveJobs
from taskmq_sql.jobs.codes import UNDERWAY_CODES
from taskmq_sql.steps import Query, places

__all__ = ["LIVE_JOBS"]

_UNDER_WAY: Final = ", ".join(map(str, UNDERWAY_CODES))


def _live(jobs: Sequence[str]) -> Query:
    ids = ", ".join(f"{place}::text::uuid" for place in places(len(jobs)).split(", "))
    text = f"""
select j.id::text, j.token, t.name, k.name, q.name from taskmq.job j
join taskmq.tenant t on t.id = j.tenant join taskmq.task k on k.id = j.task join taskmq.queue q on q.id = j.queue
where j.id in ({ids}) and j.state in ({_UNDER_WAY})"""
    return Query(text, tuple(jobs))


# Letters as SQLite has them: ASCII in either case is the same, and nothing else.
LIVE_JOBS: Final = LiveJobs(_live, 'lower(message collate "C")')
