"""Render stored values for the API: instants, and lists that leave an unreadable item out."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from taskmq.errors import RequestRefused
from taskmq.model.units import LAST_INSTANT

__all__ = ["INSTANT_FORM", "instant_text", "milliseconds_of", "rendered"]

_log = logging.getLogger("taskmq.server")

T = TypeVar("T")
V = TypeVar("V")

INSTANT_FORM: Final = (
    "is no instant: it has a date, a time with seconds, and a zone, such as 2027-01-31T08:00:00Z or "
    "2027-01-31T09:00:00+01:00"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def instant_text(milliseconds: int | None) -> str | None:
    """An instant as the API writes it: ISO 8601 in UTC, with milliseconds."""
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(instant: datetime) -> int:
    """Milliseconds since the epoch of an instant that a request names; of one after the year 9999 in UTC, its end.

    Raises:
        RequestRefused: the instant has no zone, which Litestar does not see to in a query.
    """
    if instant.tzinfo is None:
        raise RequestRefused(f"{instant.isoformat()} {INSTANT_FORM}", status=400, code="invalid_field")
    return min(round(instant.timestamp() * 1000), LAST_INSTANT)


def rendered(render: Callable[[T], V], items: Iterable[T]) -> list[V]:
    """Render what is stored, item by item, for a list; leave out what cannot be rendered, and log that.

    One item that this version cannot show does not take the list away from everybody.
    """
    shown: list[V] = []
    for item in items:
        try:
            shown.append(render(item))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are shown
            _log.warning(
                "a list leaves out a %s, which cannot be rendered: %s", type(item).__name__, type(error).__name__
            )
            _log.debug("it cannot be rendered", exc_info=error)
    return shown
