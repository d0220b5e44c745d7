"""Calls of a task that wait outside of the worker: their job is suspended, and runs again later."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

from taskmq.control_flow import Suspension
from taskmq.errors import InvalidOption
from taskmq.model.history.suspensions import SleepCall, sleep_text
from taskmq.model.units import LAST_INSTANT, Duration, parse_duration, to_ms
from taskmq.run.journal import RunJournal

__all__ = ["Sleep"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sleep:
    """A call of `sleep` in one run.

    Args:
        duration: from the first run of the call on.
        until: instead of a duration.

    Raises:
        InvalidOption: neither or both are given, or one is invalid.
    """

    def __init__(self, journal: RunJournal, duration: Duration | None, until: datetime | None) -> None:
        if (duration is None) is (until is None):
            raise InvalidOption("sleep() takes either a duration or until=")
        self._journal = journal
        now = journal.now_ms()
        instant = now + to_ms(parse_duration(duration, what="sleep")) if duration is not None else _instant_of(until)
        self._until: int = min(max(instant, 0), LAST_INSTANT)
        self.key: str = ""

    def find_unsaved(self, values: Mapping[str, bytes]) -> bytes | None:
        """Return the value to save under `key`, before `end` is called; None if an earlier run saved it."""
        call: SleepCall = self._journal.waits.next_sleep(values)
        self.key = call.key
        if call.until is None:
            return b"%d" % self._until
        self._until = call.until
        return None

    def end(self) -> None:
        """Return if the time is over.

        Raises:
            Suspension: it is not; the job runs again then.
        """
        left = self._until - self._journal.now_ms()
        if left > 0:
            raise Suspension(sleep_text(self._until), self._until, timedelta(milliseconds=left))


def _instant_of(until: datetime | None) -> int:
    if not isinstance(cast("object", until), datetime) or until is None or until.tzinfo is None:
        raise InvalidOption(f"sleep(until={until!r}): use a datetime with a time zone")
    return -(-(until - _EPOCH) // timedelta(milliseconds=1))
