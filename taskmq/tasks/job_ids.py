"""Ids of new jobs, in the order of their calls."""

import os
from collections.abc import Iterator
from itertools import count
from typing import Final

from taskmq.model.envelope import new_job_id

_MOST: Final = (1 << 56) - 1


class JobIds:
    """Ids that are unique everywhere. If one thread asks for them, they ascend.

    The ids of one millisecond have a random start and a random odd step (RFC 9562, section 6.2, method 2).
    """

    def __init__(self) -> None:
        self._current: tuple[int, bytes, Iterator[int]] = (-1, b"", count())

    def next(self, now_ms: int) -> str:
        """Return a new id, larger than the last one if that is of the same millisecond or of an earlier one.

        Args:
            now_ms: milliseconds since the epoch.
        """
        instant, prefix, numbers = self._current
        if instant != now_ms:
            random = os.urandom(14)
            # The highest bit is free, so that none of some million steps returns to 0.
            prefix, numbers = random[:3], count(int.from_bytes(random[3:10]) >> 1, int.from_bytes(random[10:]) | 1)
            self._current = now_ms, prefix, numbers
        return new_job_id(now_ms, prefix + (next(numbers) & _MOST).to_bytes(7))

    def restart(self) -> None:
        """Forget the last id. Another process may return the ids after it."""
        self._current = (-1, b"", count())


JOB_IDS: Final = JobIds()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=JOB_IDS.restart)
