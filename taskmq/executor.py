"""The contract of what runs a task's function."""

from collections.abc import Awaitable
from typing import Protocol

from taskmq.execution import Execution

__all__ = ["Executor"]


class Executor(Protocol):
    """Runs functions one way: on the loop, in a thread, in a process."""

    def run(self, execution: Execution, /) -> Awaitable[object]:
        """What the function returns.

        Cancelling it gives the run up as far as that way can: a coroutine is cancelled, a thread is left to
        itself with `context.cancelled` set, a process is killed.

        Raises:
            SoftTimeout: its `soft_timeout` has passed, and the function did not catch what was raised inside.
            TaskTimeout: the execution's `timeout` has passed; it was given up in the same way.
            MemoryExceeded: the process that ran it took more memory than the execution's grant says.
            WorkerLost: the process that ran it ended first.
            BaseException: whatever the function raised.
        """
        ...

    def ask_to_stop(self, execution: Execution, /) -> None:
        """Tell a run that nobody waits for it any more; it may go on, and end by itself.

        All of them see `context.cancelled`. Does nothing for a run that has ended. Cancelling `run` does not ask.
        """
        ...

    async def aclose(self) -> None:
        """Give up what still runs and release threads or processes. May be called twice."""
        ...
