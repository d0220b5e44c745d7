"""What is said of an error where its object does not go: in records, reports, headers and logs.

A task's own error class may do anything, and its texts may have no form in UTF-8: nothing here raises for that.
"""

import traceback
from typing import Final

from taskmq.contracts.stores import ErrorRecord
from taskmq.model.history.redaction import Redactor
from taskmq.model.units import storable

__all__ = ["ERROR_LIMIT", "ErrorTexts", "type_name"]

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

        One that has no form in UTF-8 loses the whole record; in others are values that are replaced.
        """
        return _written(error) == self.traceback_of(error)

    def _message(self, error: BaseException) -> str:
        try:
            return storable(self._redactor.redact(str(error)[:_TRACEBACK_LIMIT]))
        except Exception as failure:  # noqa: BLE001 - the task's own class, which may do anything
            return f"(its message cannot be read: {type_name(failure)})"


def type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _written(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
