"""Ends of jobs under way."""

from collections.abc import Sequence

import msgspec

from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.postgres.connections import Connection, Row, column_of
from taskmq_sql.postgres.records import error_columns
from taskmq_sql.postgres.statements.reports import END


class Ending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """End of a job under way; None keeps the value of its row."""

    id: str
    token: int
    state: JobState
    worker: int | None = None
    started: int | None = None
    finished: int | None = None
    content_type: str | None = None
    result: bytes | None = None
    error: ErrorRecord | None = None
    processor: int | None = None
    peak_memory: int | None = None


async def end(connection: Connection, endings: Sequence[Ending]) -> Sequence[Row]:
    """End the jobs still under way with these tokens; return their rows."""
    endings = sorted(endings, key=lambda ending: ending.id)
    errors = zip(*(error_columns(ending.error) for ending in endings), strict=True)
    return await connection.fetch(
        END,
        [ending.id for ending in endings],
        [ending.token for ending in endings],
        [CODES[ending.state] for ending in endings],
        [ending.worker for ending in endings],
        [ending.started for ending in endings],
        [ending.finished for ending in endings],
        column_of([ending.content_type for ending in endings]),
        column_of([ending.result for ending in endings]),
        *map(column_of, errors),
        column_of([ending.processor for ending in endings]),
        column_of([ending.peak_memory for ending in endings]),
    )
