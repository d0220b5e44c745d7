"""Signals that the shell told this process to ignore, as `nohup` and `&` in a script do."""

import signal
from types import FrameType
from typing import Final

_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def hide_from_children(*, is_worker: bool = False) -> None:
    """Keep ignoring these signals here, with a handler: a process inherits what is ignored, but no handlers.

    Args:
        is_worker: whether this is a process of `tests.processes`, which ends with its parent and not by a hangup.
    """
    for number in _OF_TERMINALS:
        if signal.getsignal(number) is signal.SIG_IGN or (is_worker and number is signal.SIGHUP):
            signal.signal(number, _ignore)


def _ignore(_number: int, _frame: FrameType | None) -> None: ...
