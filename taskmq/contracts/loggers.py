"""Loggers whose handlers cannot fail the code that logs.

A handler, filter or formatter belongs to the program and may raise anything. Its error must not end what was going on
in taskmq, or in a library that taskmq's loops call: a connection would stay closed, a delivery unsettled, a beat
silent. So the error is written to standard error instead, once a minute at most.
"""

import contextlib
import logging
import signal
import sys
import threading
import time
import traceback
from typing import Any, Final, cast

from taskmq.errors import SoftTimeout, TaskMQError
from taskmq.model.outcome import frames_of, message_of, type_name

_PERIOD: Final = 60.0
# The core's own loggers, and those of the standard library that an event loop calls itself.
_OURS: Final = (
    "taskmq",
    "taskmq.access",
    "taskmq.audit",
    "taskmq.beat",
    "taskmq.bulks",
    "taskmq.events",
    "taskmq.jobs",
    "taskmq.local",
    "taskmq.redis",
    "taskmq.scheduler",
    "taskmq.schedules",
    "taskmq.server",
    "taskmq.store",
    "taskmq.worker",
    "taskmq.workflow",
    "asyncio",
    "concurrent.futures",
)


def contained_logger(name: str) -> logging.Logger:
    """Return the logger of this name; it never raises what a handler, filter, formatter or record factory raises.

    Two exceptions propagate, because they are not the handler's: a `SoftTimeout`, which is raised in a run from
    outside, and `KeyboardInterrupt` from Ctrl-C, in the main thread of a program that has not changed its handling.
    """
    logger = logging.getLogger(name)
    kind = type(logger)
    if not issubclass(kind, _Contained):
        # Loggers are shared by name in the whole program, so the object stays and its class changes.
        logger.__class__ = _kinds.setdefault(kind, type(f"Contained{kind.__name__}", (_Contained, kind), {}))
    return logger


def contain_ours() -> None:
    """Make the loggers of the core `contained`, and those that an event loop calls. May be called twice."""
    for name in _OURS:
        contained_logger(name)


def contain_below(name: str) -> None:
    """Make the logger of this name and those below it `contained`, for a library that was imported."""
    contained_logger(name)
    for each in tuple(logging.Logger.manager.loggerDict):
        if each.startswith(f"{name}."):
            contained_logger(each)


class _Contained(logging.Logger):
    """Logger calls without the errors of handlers."""

    def _log(self, *what: Any, **options: Any) -> None:
        # The record's caller is one frame further up.
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        try:
            level, message, arguments, *more = what
            if "exc_info" in options:
                options["exc_info"] = _writable(options["exc_info"])
            super()._log(level, message, tuple(map(_readable, arguments)), *more, **options)
        except SoftTimeout:
            raise
        except KeyboardInterrupt:
            if _is_of_keyboard():
                raise
            _complaint.make(self.name)
        except BaseException:  # noqa: BLE001 - a handler of the program's, which may do anything
            _complaint.make(self.name)


def _readable(argument: object) -> object:
    """Return an argument of a log line; replace an error without a message, because the line would be lost."""
    if not issubclass(type(argument), BaseException):
        return argument
    try:
        str(argument)
    except (SoftTimeout, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 - a class of the app, which may do anything
        return message_of(argument)  # type: ignore[arg-type]
    return argument


def _writable(given: Any) -> Any:
    """Return the traceback of a log line, or an error with the same frames if Python cannot format this one."""
    error: BaseException | None
    if issubclass(type(given), BaseException):
        error = given
    elif isinstance(given, tuple):
        _, error, _ = cast("tuple[Any, BaseException | None, Any]", given)
    else:
        error = sys.exc_info()[1] if given else None
    if error is None:
        return cast("Any", given)
    try:
        "".join(traceback.format_exception(error))
    except (SoftTimeout, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 - as above
        words = f"{type_name(error)}: (what else there is to its traceback cannot be written)"
        return TaskMQError(words).with_traceback(frames_of(error))
    return cast("Any", given)


class _Complaint:
    """Rate-limited complaints about the error being handled."""

    def __init__(self) -> None:
        self._due = 0.0

    def make(self, logger: str) -> None:
        now = time.monotonic()
        if not logging.raiseExceptions or now < self._due:
            return
        self._due = now + _PERIOD
        kind, _, where = sys.exc_info()
        with contextlib.suppress(BaseException):
            # Without the error's message, which may have caused the failure or contain secrets.
            sys.stderr.write(
                f"taskmq: a log handler, filter or formatter of this program raised {kind and kind.__name__} at a "
                f"record of {logger!r}, which is lost; the next failure is shown after {_PERIOD:g} s at the "
                f"earliest\n{''.join(traceback.format_tb(where))}"
            )


def _is_of_keyboard() -> bool:
    """Return whether Ctrl-C raised the error; otherwise only a handler can have."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


_kinds: Final[dict[type[logging.Logger], type[logging.Logger]]] = {}
_complaint: Final = _Complaint()
