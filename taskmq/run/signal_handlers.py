"""Signal handlers of an app: their exceptions must not hit the code of the main thread.

Python runs a handler between two instructions of the main thread, where its exception continues. In a worker that
thread has the event loop: the error ends the loop, or the callback that would wake a run, which then waits forever.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from taskmq.contracts.loggers import contained_logger

_log = contained_logger(__name__)

_Handler = Callable[[int, FrameType | None], Any]
# Ctrl-C raises on purpose.
_LEFT: Final = (signal.default_int_handler,)


def contain_signal_handlers() -> None:
    """Make the present handlers log their exceptions.

    Later handlers are unchanged: a task that sets one may rely on its exception. `SystemExit` and other errors that
    are not an `Exception` propagate. Call it in the main thread.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler not in _LEFT:
            signal.signal(number, _contain(handler))


def _contain(handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except Exception:  # noqa: BLE001 - a handler is foreign code
            _log.exception("the app's handler of %s raised; the worker continues", signal.Signals(number).name)

    return handle
