"""Runs of a task's function, as middleware sees them, and the contract of executors."""

import inspect
from collections.abc import Awaitable, Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Protocol, cast

import msgspec

from taskmq.control_flow import Reject
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import ErrorRecord
from taskmq.model.resources import Grant
from taskmq.run.context import Context

_GENERATORS: Final = (GeneratorType, AsyncGeneratorType)
DONE: Final = frozenset({type(None), int, str, bool, float, dict, list, tuple, bytes})
"""Common types of return values, which need no closer check."""


class Execution(msgspec.Struct):
    """A run of a task's function. Middleware may replace `args` and `kwargs`, except for tasks that run in other
    processes.

    Attributes:
        function: the task's function.
        args, kwargs: its arguments, decoded and complete, the context included.
        envelope: the message as received; sent to another process.
        content_type: the encoding of the envelope's arguments.
        timeout: seconds; None for no limit.
        soft_timeout: seconds after which `SoftTimeout` is raised inside; None for no limit.
        carry: texts of middleware for the place where the function runs, if that is another process; there they reach
            `Middleware.attach`.
        record_of: returns the worker's record of an error, redacted; None: there is no worker.
        processor: processor time of the ended run in ms; None: unknown, as of coroutines, which share a thread.
        peak_memory: peak resident bytes of the run's own process; None: unknown, or it has none.
        grant: the run's share of the worker's resources; None if the task needs none.
    """

    context: Context
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    envelope: Envelope
    content_type: str
    timeout: float | None
    grant: Grant | None = None
    soft_timeout: float | None = None
    carry: dict[str, str] | None = None
    record_of: Callable[[BaseException], ErrorRecord] | None = None
    processor: int | None = None
    peak_memory: int | None = None


class Executor(Protocol):
    """Runs functions in one way: on the loop, in a thread, in a process."""

    def run(self, execution: Execution, /) -> Awaitable[object]:
        """Run the function and return its value.

        Cancelling gives the run up as far as possible: a coroutine is cancelled, a thread is abandoned with
        `context.cancelled` set, a process is killed.

        Raises:
            SoftTimeout: its `soft_timeout` has passed, and the function did not catch the exception.
            TaskTimeout: the execution's `timeout` has passed; it was given up in the same way.
            MemoryExceeded: the process that ran it exceeded the memory of the execution's grant.
            WorkerLost: the process that ran it ended first.
            BaseException: whatever the function raised.
        """
        ...

    def ask_to_stop(self, execution: Execution, /) -> None:
        """Ask a run to stop, because it was cancelled; it may continue, and end by itself.

        Every kind of run sees `context.cancelled`. Does nothing for a run that has ended. Cancelling `run` does not
        ask.
        """
        ...

    def preempt(self, execution: Execution, reason: str, /) -> None:
        """Ask a run to yield: `context.preempted` has the reason. Otherwise like `ask_to_stop`."""
        ...

    async def aclose(self) -> None:
        """Give up running functions and release threads or processes. May be called twice."""
        ...


def check_is_done(value: object, task: str) -> Reject | None:
    """Return the error for a run whose function returned check_is_done work; None for every other value.

    Undone work is a coroutine, a generator or another awaitable, which nothing would ever run. A coroutine that has
    not started is closed.
    """
    kind = type(value)
    if kind in DONE or not (kind in _GENERATORS or any("__await__" in vars(base) for base in kind.__mro__)):
        return None
    if kind in _GENERATORS:
        return Reject(
            f"task {task} returned a generator, whose code has not run: return a list of what it yields, or go "
            "through it in the task"
        )
    if kind is CoroutineType:
        coroutine = cast("CoroutineType[Any, Any, Any]", value)
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()
    return Reject(
        f"task {task} returned a {kind.__qualname__} that was never awaited, so its work is not done: await it in an "
        "`async def`; where a decorator is between the task and a coroutine function, make its wrapper one"
    )
