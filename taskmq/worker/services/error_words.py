"""Error messages for the history of runs: a few of each kind, so that a burst of failures costs no more.

A burst of failures mostly repeats one message. The error's type is kept for every failure.
"""

import time
from collections import Counter
from typing import Final

from taskmq.model.telemetry.events import LONGEST_MESSAGE, LONGEST_TRACEBACK
from taskmq.worker.config import LogErrors
from taskmq.worker.settlement.error_text import ErrorTexts

_OF_ONE_KIND: Final = 10
_IN_ALL: Final = 100
_PERIOD: Final = 60.0


class ErrorWords:
    """Error messages of one worker, bounded: 10 a minute of each task and type of error, and 100 in all.

    Args:
        said: the level of detail to keep.
    """

    def __init__(self, texts: ErrorTexts, said: LogErrors) -> None:
        self._texts = texts
        self._said = said
        self._until = 0.0
        self._counts: Counter[tuple[str, str]] = Counter()

    def of(self, task: str, error: BaseException) -> tuple[str, str] | None:
        """Return the error's message and the end of its traceback; None if nothing of it is kept."""
        if self._said == "type" or not self._has_room(task, type(error).__name__):
            return None
        found = self._texts.record(error)
        traceback = found.traceback[-LONGEST_TRACEBACK:] if self._said == "traceback" else ""
        return found.message[:LONGEST_MESSAGE], traceback

    def _has_room(self, task: str, kind: str) -> bool:
        if (now := time.monotonic()) >= self._until:
            self._counts.clear()
            self._until = now + _PERIOD
        if self._counts.total() >= _IN_ALL or self._counts[task, kind] >= _OF_ONE_KIND:
            return False
        self._counts[task, kind] += 1
        return True
