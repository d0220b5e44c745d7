"""When a call is made again, and how long is waited before: for an answer, and for a job's end."""

import random
import time

import msgspec

from taskmq.errors import InvalidOption, ResultTimeout
from taskmq.model.units import Duration, parse_duration

__all__ = ["JobWaits", "Retries", "seconds_of_duration"]

_FIRST_LOOK: float = 0.05
_LONGEST_LOOK: float = 2.0


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is made that the server could not be reached for, or was too busy for.

    A call that changes something is repeated only where the server has certainly not done it, or where twice is the
    same as once: submissions have an id, their own or an `Idempotency-Key` that the client makes.

    Attributes:
        attempts: so many in all; 1: none is repeated.
        base: seconds that are waited at most before the second attempt; twice as many before each further one.
        cap: seconds that are waited at most. What a server wants later than that is not waited for.
    """

    attempts: int = 4
    base: float = 0.2
    cap: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base < 0 or self.cap < 0:
            raise InvalidOption("retries: at least one attempt, and no negative seconds")

    def wait(self, attempt: int, *, retry_after: float | None) -> float | None:
        """How many seconds to wait after a failed attempt; None where it was the last one.

        Args:
            attempt: its number, from 1.
            retry_after: seconds that the server asks for.
        """
        if attempt >= self.attempts or (retry_after is not None and retry_after > self.cap):
            return None
        delay = random.uniform(0, min(self.base * 2 ** (attempt - 1), self.cap))
        return delay if retry_after is None else min(retry_after + delay, self.cap)


class JobWaits:
    """The pauses between looks at a job whose end is waited for: short ones first.

    Args:
        timeout: how long to wait in all; None: for ever.
    """

    def __init__(self, job_id: str, timeout: Duration | None) -> None:
        self._job_id = job_id
        self._seconds = seconds_of_duration(timeout, "timeout")
        self._until = None if self._seconds is None else time.monotonic() + self._seconds
        self._next = _FIRST_LOOK

    def following(self) -> float:
        """The seconds until the next look.

        Raises:
            ResultTimeout: the time is over.
        """
        wait, self._next = self._next, min(self._next * 2, _LONGEST_LOOK)
        if self._until is None:
            return wait
        left = self._until - time.monotonic()
        if left <= 0:
            raise ResultTimeout(f"job {self._job_id} has not ended within {self._seconds:g} s; it goes on")
        return min(wait, left)


def seconds_of_duration(given: Duration | None, what: str) -> float | None:
    """A duration in seconds; None where none is given.

    Raises:
        InvalidOption: it is none.
    """
    return None if given is None else parse_duration(given, what=what).total_seconds()
