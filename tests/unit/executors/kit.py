"""Helpers shared by the tests of the executors."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from taskmq.model.envelope import Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(
    main: Coroutine[Any, Any, None], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Run a test's coroutine; the loop's exception handler must not have been called."""
    complaints: list[str] = []

    async def run_with_timeout() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(40):
            await main

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run_with_timeout())
    assert not complaints, complaints


def execution(
    function: Callable[..., Any],
    *args: Any,
    timeout: float | None = None,
    soft_timeout: float | None = None,
    **kwargs: Any,
) -> Execution:
    envelope = Envelope(task="task")
    context = Context(envelope, job_id="job-1", max_attempts=1, queue="work", redelivered=False)
    return Execution(
        context, function, args, kwargs, envelope, "application/json", timeout, soft_timeout=soft_timeout
    )
