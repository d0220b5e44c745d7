"""How logs ask this file about jobs."""

from collections.abc import Sequence
from typing import Final

from taskmq_sql.history import LiveJobs
from taskmq_sql.sqlite.jobs.codes import UNDER_WAY, id_bytes
from taskmq_sql.steps import Query, places

__all__ = ["LIVE_JOBS"]

_UNDER_WAY: Final = ", ".join(map(str, sorted(UNDER_WAY)))
_ID: Final = "lower(hex(j.id))"
_TEXT: Final = " || '-' || ".join(
    f"substr({_ID}, {begin}, {length})" for begin, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
)


def _live(jobs: Sequence[str]) -> Query:
    text = f"""
select {_TEXT}, j.token, t.name, k.name, q.name from taskmq.job j
join taskmq.name t on t.id = j.tenant join taskmq.name k on k.id = j.task join taskmq.name q on q.id = j.queue
where j.id in ({places(len(jobs))}) and j.state in ({_UNDER_WAY})"""
    return Query(text, tuple(map(id_bytes, jobs)))


LIVE_JOBS: Final = LiveJobs(_live, "lower(message)")
