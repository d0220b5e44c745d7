"""Values of the API's requests: short texts, instants, priorities; and what lists come in."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

__all__ = [
    "API",
    "MOST_ITEMS",
    "MOST_PER_PAGE",
    "Instant",
    "ListPage",
    "Note",
    "PriorityLevel",
    "Secret",
    "ShortText",
]

API: Final = "/api/v1"
"""Where the API begins, below the root path."""
MOST_ITEMS: Final = 1_000
"""So many jobs can be submitted at a time."""
MOST_PER_PAGE: Final = 200
"""So many things are in a page of a list."""

# A NUL is no part of a text in any database, and of none that people write.
ShortText = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[^\x00]*$")]
Note = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00]*$")]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
PriorityLevel = Literal["high", "medium", "low"] | Annotated[int, msgspec.Meta(ge=0, le=9)]


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list.

    Attributes:
        next: what to say as `cursor` for the next page; None at the end.
        is_bounded: the search stopped before it had looked at everything; the next page goes on from there.
    """

    items: list[Any]
    next: str | None = None
    is_bounded: bool = False


Secret = Annotated[str, msgspec.Meta(max_length=1_024)]
