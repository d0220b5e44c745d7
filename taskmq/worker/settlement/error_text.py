"""Texts of errors for records, reports, headers and logs.

A task's own error class may run any code, and its texts may not be encodable as UTF-8: nothing here raises for that.
Python itself fails to format some tracebacks, for example of a `SyntaxError` whose text is bytes.
"""

import traceback
from typing import Final

from taskmq.contracts.stores import ErrorRecord
from taskmq.errors import TaskMQError
from taskmq.model.history.redaction import Redactor
from taskmq.model.outcome import frames_of, message_of, type_name
from taskmq.model.units import storable

ERROR_LIMIT: Final = 500
_TRACEBACK_LIMIT: Final = 16_000


class ErrorTexts:
    """Formats the errors of one worker, redacted like its log lines."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def record(self, error: BaseException) -> ErrorRecord:
        return ErrorRecord(
            type_name=type_name(error), message=self._message(error), traceback=self.traceback_of(error)
        )

    def summary(self, error: BaseException) -> str:
        return f"{type_name(error)}: {self._message(error)}"[:ERROR_LIMIT]

    def traceback_of(self, error: BaseException) -> str:
        """Return the end of the traceback, which has the task's own frames."""
        # Redacted before it is cut: otherwise a secret whose name was cut off would stay.
        return storable(self._redactor.redact(_format_traceback(error)[-2 * _TRACEBACK_LIMIT :])[-_TRACEBACK_LIMIT:])

    def is_plain(self, error: BaseException) -> bool:
        """Return whether a log handler may format the error's traceback itself.

        A traceback that cannot be encoded or formatted loses the whole record, and others contain values to redact.
        """
        return _format_natively(error) == self.traceback_of(error)

    def _message(self, error: BaseException) -> str:
        return storable(self._redactor.redact(message_of(error)[:_TRACEBACK_LIMIT]))


def substitute(error: BaseException, task: str) -> TaskMQError:
    """Return an error that replaces one whose class raises when it is inspected; its frames are the same."""
    words = f"task {task} raised {type_name(error)}, an error whose class raises when it is looked at"
    return TaskMQError(words).with_traceback(frames_of(error))


def _format_traceback(error: BaseException) -> str:
    written = _format_natively(error)
    if written is not None:
        return written
    return "".join(
        (
            "Traceback (most recent call last):\n",
            *traceback.format_tb(frames_of(error)),
            f"{type_name(error)}: (what else there is to its traceback cannot be written)\n",
        )
    )


def _format_natively(error: BaseException) -> str | None:
    """Return the error's traceback; None if it cannot be formatted."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - the task's own class, and what it holds, may do anything
        return None
