"""Instants as people write and read them."""

from datetime import UTC, datetime, timedelta
from typing import Final, cast

from taskmq.errors import InvalidOption

__all__ = ["instant_in_words", "instant_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def instant_of(when: datetime, *, what: str) -> int:
    """Milliseconds since the epoch.

    Raises:
        InvalidOption: it is no datetime, or has no zone; names the option `what`.
    """
    # Options arrive from callers whom no type checker has seen.
    if not isinstance(cast("object", when), datetime) or when.utcoffset() is None:
        raise InvalidOption(f"{what}={when!r}: a datetime with a zone, such as datetime(2027, 1, 31, 9, tzinfo=UTC)")
    return (when - _EPOCH) // _MILLISECOND


def instant_in_words(instant: int) -> str:
    """Such as "2027-01-31 09:00 UTC"; seconds and their parts only if there are any."""
    when = _EPOCH + timedelta(milliseconds=instant)
    precision = "milliseconds" if instant % 1000 else "seconds" if instant % 60_000 else "minutes"
    return f"{when.replace(tzinfo=None).isoformat(' ', precision)} UTC"
