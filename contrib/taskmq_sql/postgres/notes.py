"""Events of the histories of jobs."""

from collections.abc import Iterable
from typing import Final

import msgspec

from taskmq.model.jobs.reports import MOST_UNHEEDED, UNHEEDED
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES, EVENT_CODES, EventKind
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.statements.reports import EVENTS

_WORKERS: Final = "select id, name from taskmq.worker where id = any($1::int[])"
_UNHEEDED: Final = sorted(EVENT_CODES[kind] for kind in EVENT_CODES if kind in UNHEEDED)
_COUNTS: Final = """
select e.id, count(*) from taskmq.event e
where e.id = any($1::uuid[]) and e.kind = any($2::smallint[]) group by e.id"""


class Note(msgspec.Struct, frozen=True):
    """An event of a job's history."""

    id: str
    version: int
    kind: EventKind
    state: JobState
    by: str = ""
    text: str = ""
    started: int | None = None
    changes_nothing: bool = False


async def _without_many_unheeded(connection: Connection, notes: list[Note]) -> list[Note]:
    """Drop events of reports that changed nothing, for jobs that already have the maximum."""
    ids = sorted({each.id for each in notes if each.changes_nothing})
    if not ids:
        return notes
    counts = {str(row[0]): row[1] for row in await connection.fetch(_COUNTS, ids, _UNHEEDED)}
    kept: list[Note] = []
    for each in notes:
        if each.changes_nothing:
            counts[each.id] = counts.get(each.id, 0) + 1
        if not each.changes_nothing or counts[each.id] <= MOST_UNHEEDED:
            kept.append(each)
    return kept


async def note(connection: Connection, found: Iterable[Note]) -> None:
    """Insert the events in one statement, without those that change nothing and exceed the maximum of their job."""
    if notes := await _without_many_unheeded(connection, list(found)):
        await connection.execute(
            EVENTS,
            [each.id for each in notes],
            [each.version for each in notes],
            [EVENT_CODES[each.kind] for each in notes],
            [CODES[each.state] for each in notes],
            [storable(each.by) for each in notes],
            [storable(each.text) for each in notes],
            [each.started for each in notes],
        )


async def worker_names(connection: Connection, workers: Iterable[int | None]) -> dict[int | None, str]:
    """Return the names of workers by their numbers."""
    numbers = list({worker for worker in workers if worker is not None})
    return dict(await connection.fetch(_WORKERS, numbers))
