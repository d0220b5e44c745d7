"""Calls that suspend their job until an instant, and the values that they save. Pure.

    first run:  sleep  -> saves the instant under `sleep 1` -> the run ends, and the job waits for the instant
    next run:   sleep  -> finds the instant in the past     -> returns

A job runs again from the start of its function. Its calls get their values by name and number: the second `sleep` of
a run finds the value of the second `sleep` of the run before.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from taskmq.model.units import instant_text

__all__ = ["SUSPENDED", "RunWaits", "SleepCall", "sleep_text"]

SUSPENDED: Final = "Suspended"
"""Error type in the report of a run that was suspended; the message is the reason."""

_SLEEP: Final = "sleep"


class SleepCall(NamedTuple):
    """A call of `sleep`.

    Attributes:
        key: name of its saved value.
        until: the saved instant, ms since the epoch; None: this is its first run.
    """

    key: str
    until: int | None


class RunWaits:
    """Numbers of the waiting calls of one run."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def next_sleep(self, values: Mapping[str, bytes]) -> SleepCall:
        """Return the run's next call of `sleep`, with what an earlier run saved of it."""
        self._calls[_SLEEP] += 1
        key = f"{_SLEEP} {self._calls[_SLEEP]}"
        saved = values.get(key)
        return SleepCall(key, None if saved is None else int(saved))


def sleep_text(until: int) -> str:
    """Describe for people what a sleeping job waits for."""
    return f"asleep until {instant_text(until)}"
