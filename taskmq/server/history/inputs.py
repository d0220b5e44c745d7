"""What calls about history are made of."""

from datetime import datetime
from typing import Annotated

from litestar.params import QueryParameter

from taskmq.app_api.views import milliseconds_of
from taskmq.server.inputs import Instant
from taskmq.server.problems import Problem

__all__ = ["By", "OfQueue", "OfTask", "Since", "Until", "ms", "number_of", "parts"]

Since = Annotated[Instant | None, QueryParameter(description="From this instant on.")]
OfTask = Annotated[str | None, QueryParameter(description="Of this task alone.")]
OfQueue = Annotated[str | None, QueryParameter(description="Of this queue alone.")]
Until = Annotated[Instant | None, QueryParameter(description="Before this instant.")]
By = Annotated[str, QueryParameter(description="Figures for each of task, queue, tenant; with commas between.")]


def ms(instant: datetime | None) -> int | None:
    """Milliseconds since the epoch."""
    return None if instant is None else max(milliseconds_of(instant), 0)


def number_of(cursor: str | None) -> int | None:
    """The number in a cursor; None for the first page.

    Raises:
        Problem: it is no cursor of ours.
    """
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Problem.about("cursor", f"{cursor[:40]!r} is no cursor", "`next` of the page before")
    return int(cursor)


def parts(by: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in by.split(",") if name.strip())
