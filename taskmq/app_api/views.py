"""Rendering of stored values for the API: timestamps, and lists that skip unreadable items."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from taskmq.errors import RequestRefused
from taskmq.model.units import LAST_INSTANT

_log = logging.getLogger("taskmq.server")

T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)

INSTANT_FORM: Final = (
    "must be a timestamp with date, time with seconds, and time zone, such as 2027-01-31T08:00:00Z or "
    "2027-01-31T09:00:00+01:00"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def instant_text(milliseconds: int | None) -> str | None:
    """Format a timestamp for the API: ISO 8601 in UTC, with milliseconds."""
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(instant: datetime) -> int:
    """Return the milliseconds since the epoch of a timestamp in a request, at most the end of the year 9999.

    Raises:
        RequestRefused: the timestamp has no time zone, which Litestar does not check in queries.
    """
    if instant.tzinfo is None:
        raise RequestRefused(f"{instant.isoformat()} {INSTANT_FORM}", status=400, code="invalid_field")
    return min(round(instant.timestamp() * 1000), LAST_INSTANT)


def bound_of(instant: datetime | None) -> int | None:
    """Return a bound of a period in ms since the epoch, at least 0; None if the period is open there."""
    return None if instant is None else max(milliseconds_of(instant), 0)


def view_of(kind: type[S], found: object, /, **fields: Any) -> S:
    """Build a view from the attributes of the same names, and from the other fields.

    Raises:
        AttributeError: a field of the view is neither given nor an attribute, even if it has a default.
    """
    for name in kind.__struct_fields__:
        if name not in fields:
            fields[name] = getattr(found, name)
    return kind(**fields)


def render_all(render: Callable[[T], V], items: Iterable[T]) -> list[V]:
    """Render stored items for a list. Items that fail to render are skipped and logged.

    One item that this version cannot show must not break the list for everybody.
    """
    shown: list[V] = []
    for item in items:
        try:
            shown.append(render(item))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are shown
            _log.warning(
                "skipping a %s in a list, which failed to render: %s", type(item).__name__, type(error).__name__
            )
            _log.debug("rendering failed", exc_info=error)
    return shown
