"""The first worker process of `taskmq worker` and `taskmq dev`, started before it is known what for.

To load what reads the command line takes about as long as to load what a worker process needs. So the first one is
started at once, and is given its order when that is known. If it never is, as after an option that is wrong, the
process ends with its standard input and has done nothing.
"""

import contextlib
import os
import subprocess
import sys

__all__ = ["HeadStart", "begin", "child_command", "take"]


class HeadStart:
    """A worker process that waits for its order.

    Attributes:
        process: it.
        orders: where the order is written, the process's standard input.
        reports: where what it says is read.
    """

    def __init__(self) -> None:
        stdin, self.orders = os.pipe()
        self.reports, status = os.pipe()
        try:
            self.process = subprocess.Popen(
                child_command(status), stdin=stdin, pass_fds=(status,), start_new_session=True
            )
        except BaseException:
            os.close(self.orders)
            os.close(self.reports)
            raise
        finally:
            os.close(stdin)
            os.close(status)


_waiting: list[HeadStart] = []


def child_command(status: int) -> list[str]:
    """What runs as a worker process; `status` is the descriptor on which it says how it does."""
    return [sys.executable, "-m", "taskmq.worker.child", str(status)]


def begin() -> None:
    """Start one, if the system lets us."""
    with contextlib.suppress(OSError):
        _waiting.append(HeadStart())


def take() -> HeadStart | None:
    """The one that waits; who takes it sees to its end."""
    return _waiting.pop() if _waiting else None
