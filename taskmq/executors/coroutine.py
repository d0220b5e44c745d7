"""Coroutines on the worker's own loop."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from taskmq.errors import TaskTimeout
from taskmq.executors.interrupt import CoroutineInterrupt
from taskmq.run.execution import Execution


def soft_words(execution: Execution) -> str:
    """Return the message of the error that is raised inside a run that takes too long."""
    return f"task {execution.context.task} ran longer than its soft_timeout of {execution.soft_timeout:g} s"


def timed_out(execution: Execution) -> TaskTimeout:
    """Return the error of a run that took too long."""
    return TaskTimeout(f"task {execution.context.task} ran longer than its timeout of {execution.timeout:g} s")


class CoroutineExecutor:
    """Runs coroutine functions where it is called."""

    async def run(self, execution: Execution) -> object:
        if execution.soft_timeout is not None:
            return await self.finish(execution, self._call_softly(execution, execution.soft_timeout))
        if execution.timeout is not None:
            return await self.finish(execution, self._call(execution))
        return await execution.function(*execution.args, **execution.kwargs)

    def finish(self, execution: Execution, rest: Awaitable[object]) -> Awaitable[object]:
        """Return the result of `rest` of a run, which has the whole timeout of the run from now on."""
        return rest if execution.timeout is None else self._within(execution, execution.timeout, rest)

    async def _within(self, execution: Execution, seconds: float, rest: Awaitable[object]) -> object:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await rest
        except TimeoutError as error:
            # The function's own TimeoutError passes; the timer identifies this one.
            if limit.expired():
                execution.context.mark_cancelled()
                raise timed_out(execution) from error
            raise

    async def _call(self, execution: Execution) -> Any:
        return await execution.function(*execution.args, **execution.kwargs)

    async def _call_softly(self, execution: Execution, seconds: float) -> Any:
        call = CoroutineInterrupt(
            execution.function(*execution.args, **execution.kwargs), words=soft_words(execution)
        )
        timer = asyncio.get_running_loop().call_later(seconds, call.interrupt)
        try:
            return await call
        finally:
            timer.cancel()
            call.forget()

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    def preempt(self, execution: Execution, reason: str) -> None:
        execution.context.mark_preempted(reason)

    async def aclose(self) -> None:
        """Return at once: there is nothing to release."""
