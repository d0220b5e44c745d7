"""Shared parameters of history requests."""

from datetime import datetime
from typing import Annotated

from litestar.params import QueryParameter

from taskmq.api.values import Instant, LogLevel
from taskmq.app_api.views import milliseconds_of
from taskmq.server.problems import Problem

FromLevel = Annotated[LogLevel, QueryParameter(description="Minimum level.")]
Text = Annotated[
    str, QueryParameter(description="Text in the line; ASCII letters match in either case.", max_length=500)
]
OfStep = Annotated[str, QueryParameter(description="Only this step of the run, and its children.", max_length=255)]
Since = Annotated[Instant | None, QueryParameter(description="At or after this time.")]
OfTask = Annotated[str | None, QueryParameter(description="Only this task.")]
OfQueue = Annotated[str | None, QueryParameter(description="Only this queue.")]
Until = Annotated[Instant | None, QueryParameter(description="Before this time.")]
By = Annotated[str, QueryParameter(description="Comma-separated dimensions to group by: task, queue, tenant.")]


def ms(instant: datetime | None) -> int | None:
    """Return milliseconds since the epoch."""
    return None if instant is None else max(milliseconds_of(instant), 0)


def number_of(cursor: str | None) -> int | None:
    """Return the number in a cursor; None for the first page.

    Raises:
        Problem: the cursor is malformed.
    """
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Problem.about("cursor", f"{cursor[:40]!r} is not a cursor", "`next` of the previous page")
    return int(cursor)


def parts(by: str) -> tuple[str, ...]:
    """Split a comma-separated list of names."""
    return tuple(name.strip() for name in by.split(",") if name.strip())
