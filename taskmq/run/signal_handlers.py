"""Handlers of signals that an app brings along: what they raise must not hit what the main thread does.

Python runs a handler between two instructions of the main thread, and what it raises goes on there. In a worker that
thread has the event loop: the error ends the loop, or the callback that was to wake a run, which then waits for ever.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from taskmq.contracts.loggers import contained

__all__ = ["contain_signal_handlers"]

_log = contained(__name__)

_Handler = Callable[[int, FrameType | None], Any]
# Ctrl-C raises on purpose.
_LEFT: Final = (signal.default_int_handler,)


def contain_signal_handlers() -> None:
    """Have the handlers that are set by now log what they raise.

    Handlers that are set later are left as they are: a task that sets one may rely on what it raises. `SystemExit`
    and other errors that are no `Exception` go on. To be called in the main thread.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler not in _LEFT:
            signal.signal(number, _contained(handler))


def _contained(handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except Exception:  # noqa: BLE001 - a handler is foreign code
            _log.exception("the app's handler of %s raised; the worker goes on", signal.Signals(number).name)

    return handle
