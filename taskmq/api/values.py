"""Value types of the API's requests, the page of a list, and the form of an operation."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

API: Final = "/api/v1"
"""Path prefix of the API below the root path."""
MOST_ITEMS: Final = 1_000
"""Maximum number of jobs in one submission."""
MOST_PER_PAGE: Final = 200
"""Maximum number of items in one page of a list."""

# PostgreSQL cannot store NUL characters in text.
ShortText = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[^\x00]*$")]
Note = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00]*$")]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
PriorityLevel = Literal["high", "medium", "low"] | Annotated[int, msgspec.Meta(ge=0, le=9)]


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list.

    Attributes:
        next: the `cursor` of the next page; None on the last page.
        is_bounded: whether the search stopped before it examined everything; the next page continues from there.
    """

    items: list[Any]
    next: str | None = None
    is_bounded: bool = False


class Operation(NamedTuple):
    """An operation of the API; `taskmq.api._generated.operations` lists those of the client.

    Attributes:
        path: the path, with parameter names in braces.
        repeats: whether it may be repeated if its outcome is unknown, because doing it twice has the same effect.
    """

    method: str
    path: str
    repeats: bool


Secret = Annotated[str, msgspec.Meta(max_length=1_024)]
