"""What is said of an error where its object does not go: in records, reports, headers and logs.

A task's own error class may do anything, and its texts may have no form in UTF-8: nothing here raises for that.
Python itself fails to write some tracebacks, for example of a `SyntaxError` whose text is bytes.
"""

import traceback
from typing import Final

from taskmq.contracts.stores import ErrorRecord
from taskmq.errors import TaskMQError
from taskmq.model.history.redaction import Redactor
from taskmq.model.outcome import frames_of, message_of, type_name
from taskmq.model.units import storable

__all__ = ["ERROR_LIMIT", "ErrorTexts", "substitute"]

ERROR_LIMIT: Final = 500
_TRACEBACK_LIMIT: Final = 16_000


class ErrorTexts:
    """Makes the texts of one worker's errors, redacted by the rules of its lines of logs."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def record(self, error: BaseException) -> ErrorRecord:
        return ErrorRecord(
            type_name=type_name(error), message=self._message(error), traceback=self.traceback_of(error)
        )

    def summary(self, error: BaseException) -> str:
        return f"{type_name(error)}: {self._message(error)}"[:ERROR_LIMIT]

    def traceback_of(self, error: BaseException) -> str:
        """The end of the traceback: that is where the task's own frames are."""
        # Redacted before it is cut: a value whose name was cut off would stay.
        return storable(self._redactor.redact(_written(error)[-2 * _TRACEBACK_LIMIT :])[-_TRACEBACK_LIMIT:])

    def is_plain(self, error: BaseException) -> bool:
        """Whether a handler of logs may write its traceback as it is.

        One that has no form in UTF-8, or cannot be written, loses the whole record; in others are values that are
        replaced.
        """
        return _as_python_has_it(error) == self.traceback_of(error)

    def _message(self, error: BaseException) -> str:
        return storable(self._redactor.redact(message_of(error)[:_TRACEBACK_LIMIT]))


def substitute(error: BaseException, task: str) -> TaskMQError:
    """An error to go on with instead of one whose class raises when it is looked at; its frames are the same."""
    words = f"task {task} raised {type_name(error)}, an error whose class raises when it is looked at"
    return TaskMQError(words).with_traceback(frames_of(error))


def _written(error: BaseException) -> str:
    written = _as_python_has_it(error)
    if written is not None:
        return written
    return "".join(
        (
            "Traceback (most recent call last):\n",
            *traceback.format_tb(frames_of(error)),
            f"{type_name(error)}: (what else there is to its traceback cannot be written)\n",
        )
    )


def _as_python_has_it(error: BaseException) -> str | None:
    """Its traceback; None where it cannot be written."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - the task's own class, and what it holds, may do anything
        return None
