"""What is said of an error where its object does not go: in records, reports, headers and logs.

A task's own error class may do anything, and its texts may have no form in UTF-8: nothing here raises for that.
"""

import traceback
from typing import Final

from taskmq.contracts.stores import ErrorRecord
from taskmq.model.history.redaction import Redactor
from taskmq.model.units import storable

__all__ = ["ERROR_LIMIT", "error_record", "has_form", "summary", "traceback_of", "type_name"]

ERROR_LIMIT: Final = 500
_TRACEBACK_LIMIT: Final = 16_000
_SECRETS: Final = Redactor()


def error_record(error: BaseException) -> ErrorRecord:
    return ErrorRecord(type_name=type_name(error), message=_message(error), traceback=traceback_of(error))


def type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def summary(error: BaseException) -> str:
    return f"{type_name(error)}: {_message(error)}"[:ERROR_LIMIT]


def _message(error: BaseException) -> str:
    try:
        return storable(_SECRETS.redact(str(error)[:_TRACEBACK_LIMIT]))
    except Exception as failure:  # noqa: BLE001 - the task's own class, which may do anything
        return f"(its message cannot be read: {type_name(failure)})"


def traceback_of(error: BaseException) -> str:
    """The end of the traceback: that is where the task's own frames are."""
    return storable(_tail(error))


def _tail(error: BaseException) -> str:
    # Redacted before it is cut: a value whose name was cut off would stay.
    text = "".join(traceback.format_exception(error))[-2 * _TRACEBACK_LIMIT :]
    return _SECRETS.redact(text)[-_TRACEBACK_LIMIT:]


def has_form(error: BaseException) -> bool:
    """Whether its traceback has a form in UTF-8: a handler that writes one which has none loses the whole record."""
    return traceback_of(error) == _tail(error)
