"""Forks of a process that runs tasks: each ends where the code of its task ends.

A task may fork, to start a program or to compute in parallel. The child is a copy of the whole worker, with its
connections, its deliveries and, in a coroutine, its event loop. Whatever it did there would be in the worker's name:
answer, acknowledge, run the next job a second time. So it never returns: it ends like a child of `multiprocessing`,
without `atexit` and without any part of the worker.

The worker checks `PROCESS` when a task's code returns to it. An asyncio task of the task's own returns to the event
loop instead, whose next callbacks and pending writes are copies of the worker's: a second acknowledgement on the
connection makes RabbitMQ close the channel, and deliver the channel's messages again. So a profile function of the
child ends it when that code returns. It slows each call there, so processes of `multiprocessing`, which never return,
have none.
"""

import asyncio
import contextlib
import inspect
import os
import sys
import traceback
from functools import partial
from types import FrameType
from typing import Final, NoReturn

_NEVER_RETURNS: Final = "multiprocessing.popen_fork"
NO_LOOP: Final = "a fork of a coroutine has no event loop: it can wait for nothing, and ends"
"""Message of the error for a fork that waits."""


class ProcessKind:
    """The role of this process.

    Attributes:
        is_fork: whether it is a fork of a process that runs tasks, in which no part of the worker may continue.
    """

    __slots__ = ("is_fork",)

    def __init__(self) -> None:
        self.is_fork = False


PROCESS: Final = ProcessKind()
"""This process. Code that runs tasks checks it when the task's code returns, at the cost of an attribute."""


def end_forks(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Make forks of this process end when they leave the code of their task, from now on.

    Args:
        loop: the loop that runs coroutines here, and now the caller; None without one.
    """
    # uvloop has no frames of its own: the caller of the loop comes before the caller of this function.
    below = None if loop is None else _frame_below(2)

    def mark() -> None:
        PROCESS.is_fork = True
        callback = None if below is None else _find_callback(_frame_below(1), below)
        if callback is not None and not callback.f_globals.get("__name__", "").startswith("taskmq."):
            sys.setprofile(partial(_leave_with, callback))
        if loop is not None:
            # For code that has set another profile function.
            loop.call_soon(leave_fork, None)

    os.register_at_fork(after_in_child=mark)


def _frame_below(count: int) -> FrameType | None:
    """Return the frame this many calls before the one that asks."""
    frame = inspect.currentframe()
    for _ in range(count + 1):
        frame = None if frame is None else frame.f_back
    return frame


def _find_callback(frame: FrameType | None, below: FrameType) -> FrameType | None:
    """Return the frame that the event loop has called; None if there is none, or the fork never returns to it."""
    found = None
    while frame is not None and frame is not below and frame.f_code is not asyncio.Handle._run.__code__:  # noqa: SLF001 - asyncio's only call of callbacks
        if frame.f_globals.get("__name__") == _NEVER_RETURNS:
            return None
        found, frame = frame, frame.f_back
    return None if frame is None else found


def _leave_with(callback: FrameType, frame: FrameType, event: str, arg: object) -> None:  # noqa: ARG001 - profile functions are called so
    if frame is callback and event == "return":
        leave_fork(None)


def leave_fork(error: BaseException | None) -> NoReturn:
    """End this process, which is a fork: with the exit code of `sys.exit`, or 1 after any other error."""
    code = 0
    if error is not None:
        code = 1
        with contextlib.suppress(BaseException):
            if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
                code = error.code or 0
            else:
                traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code & 0xFF)
