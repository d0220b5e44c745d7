"""Which words of errors go into the history of runs: those of few failures of a kind, so that a storm costs no more.

What fails a thousand times a minute mostly says the same each time. The type of the error is kept of all failures.
"""

import time
from collections import Counter
from typing import Final

from taskmq.model.telemetry.events import LONGEST_MESSAGE, LONGEST_TRACEBACK
from taskmq.worker.config import LogErrors
from taskmq.worker.settlement.error_text import ErrorTexts

__all__ = ["ErrorWords"]

_OF_ONE_KIND: Final = 10
_IN_ALL: Final = 100
_PERIOD: Final = 60.0


class ErrorWords:
    """The words of one worker's errors, bounded: 10 a minute of each task and type of error, and 100 in all.

    Args:
        said: which of them are kept.
    """

    def __init__(self, texts: ErrorTexts, said: LogErrors) -> None:
        self._texts = texts
        self._said = said
        self._until = 0.0
        self._counts: Counter[tuple[str, str]] = Counter()

    def of(self, task: str, error: BaseException) -> tuple[str, str] | None:
        """What the error says, and the end of its traceback; None where nothing of it is kept."""
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
