"""Coroutines on the worker's own loop."""

import asyncio
from typing import Any

from taskmq.errors import TaskTimeout
from taskmq.execution import Execution

__all__ = ["CoroutineExecutor", "timed_out"]


def timed_out(execution: Execution) -> TaskTimeout:
    """The error for a run that took too long."""
    return TaskTimeout(f"task {execution.context.task} ran longer than its timeout of {execution.timeout:g} s")


class CoroutineExecutor:
    """Runs coroutine functions where it is called."""

    async def run(self, execution: Execution) -> object:
        if execution.timeout is None:
            return await execution.function(*execution.args, **execution.kwargs)
        limit = asyncio.timeout(execution.timeout)
        try:
            async with limit:
                return await self._call(execution)
        except TimeoutError as error:
            # The function's own TimeoutError passes; ours is told apart by the timer.
            if limit.expired():
                execution.context.mark_cancelled()
                raise timed_out(execution) from error
            raise

    async def _call(self, execution: Execution) -> Any:
        return await execution.function(*execution.args, **execution.kwargs)

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    async def aclose(self) -> None:
        """Nothing to release."""
