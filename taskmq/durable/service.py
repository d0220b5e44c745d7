"""Long-lived parts of a process, and the group that owns them.

    ServiceGroup: start a, start b -> ... -> stop b, stop a: each finishes its work; cancelled after its grace run
        raises: logged, and run again after a pause

A group runs its services in an `asyncio.TaskGroup`: once its block has ended, none of them runs any more.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from taskmq.model.backoff import Backoff

_log = logging.getLogger("taskmq")

T = TypeVar("T")

_GRACE: Final = 0.5
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class Service(Protocol):
    """A part of a process that works for as long as the process.

    `run` and `stop` may be called in any order and number: `run` returns immediately after a `stop`, and only the
    first `stop` has an effect.
    """

    async def run(self) -> None:
        """Work until `stop`, and return once current work has ended; if it is cancelled, end immediately.

        It may be called again after it has raised.
        """
        ...

    def stop(self) -> None:
        """Have `run` return soon."""
        ...


class ServiceGroup:
    """Runs services while its block runs; at the end stops them one by one, the last one first."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: list[tuple[Service, asyncio.Task[None], float]] = []
        self._longest_grace = math.inf
        self._ending: tuple[asyncio.Task[None], asyncio.TimerHandle] | None = None
        self._is_stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def start(self, service: Service, name: str, *, grace: float = _GRACE) -> None:
        """Start a service; when this returns, it has made its first step.

        Args:
            name: names it in log lines and in its task.
            grace: seconds that it has to end by itself.
        """
        task = self._group.create_task(self._keep(service, name), name=f"taskmq {name}")
        self._running.append((service, task, grace))
        await asyncio.sleep(0)

    def hurry(self, *, grace: float = _GRACE) -> None:
        """Limit the grace of all services to this many seconds; if one is ending, it has them from now on."""
        self._longest_grace = min(self._longest_grace, grace)
        if self._ending is not None:
            task, timer = self._ending
            loop = asyncio.get_running_loop()
            if (end := loop.time() + grace) < timer.when():
                timer.cancel()
                self._ending = task, loop.call_at(end, task.cancel)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        try:
            for service, task, grace in reversed(self._running):
                service.stop()
                limit = min(grace, self._longest_grace)
                self._ending = task, asyncio.get_running_loop().call_later(limit, task.cancel)
                try:
                    await asyncio.wait((task,))
                finally:
                    self._ending[1].cancel()
        finally:
            for _, task, _ in self._running:
                task.cancel()
            # Without the block's own error, which propagates unchanged.
            await self._group.__aexit__(None, None, None)

    async def _keep(self, service: Service, name: str) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        while not self._is_stopping.is_set():
            began = loop.time()
            try:
                await service.run()
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                # A fault in one part must neither end the others nor go unseen.
                if is_interruption(error):
                    raise
                if loop.time() - began > _LONGEST_PAUSE:
                    backoff.reset()
                seconds = backoff.next()
                _log.critical("%s failed; restarting it in %g s", name, seconds, exc_info=True)
                await pause(self._is_stopping, seconds)
            else:
                return


def is_interruption(error: BaseException) -> bool:
    """Return whether the current asyncio task must end; otherwise the error is a failure, even a cancellation.

    A task may have awaited something that was cancelled, and code of the app may raise anything.
    """
    # By its type: the error's own class may run any code when it is inspected.
    if issubclass(type(error), GeneratorExit):
        return True
    task = asyncio.current_task()
    return issubclass(type(error), asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def pause(stop: asyncio.Event, seconds: float) -> bool:
    """Wait this many seconds, or until `stop` is set; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


async def unless_set(event: asyncio.Event, call: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T | None:
    """Return the result of the call; None if `event` is set first, or the time is over: then the call is cancelled.

    Raises whatever the call raises.
    """
    calling, waiting = asyncio.ensure_future(call), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((calling, waiting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (calling, waiting):
            each.cancel()
        await asyncio.wait((calling, waiting))
    return None if calling.cancelled() else calling.result()
