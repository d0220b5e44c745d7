"""Forks of a process that runs tasks: each ends where the code of its task ends.

A task may fork, to start a program or to compute in parallel. The child is a copy of the whole worker, with its
connections, its deliveries and, in a coroutine, its event loop. Whatever it did there would be in the worker's name:
answer, acknowledge, run the next job a second time. So it never returns: it ends like a child of `multiprocessing`,
without `atexit` and without any part of the worker.
"""

import asyncio
import contextlib
import os
import sys
import traceback
from typing import Final, NoReturn

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
        loop: the loop that runs coroutines here; None without one.
    """

    def mark() -> None:
        PROCESS.is_fork = True
        if loop is not None:
            # For forks that return to the loop past all checks: an asyncio task of the task's own.
            loop.call_soon(leave_fork, None)

    os.register_at_fork(after_in_child=mark)


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
