"""The waits of settling for a broker or a state that does not answer.

A slot that waits is better than a task that runs twice. What a guard has to record (an idempotency key, a step of a
workflow) waits until the worker stops, because a second run would break what it promises. A result waits for a
bounded time, which is meant to end before RabbitMQ takes the delivery back (30 minutes by default).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from taskmq.durable.service import pause
from taskmq.errors import StateUnavailable
from taskmq.model.backoff import Backoff

_log = logging.getLogger("taskmq.worker")

_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0

T = TypeVar("T")


class SettlingPatience:
    """The waits of everything that settles.

    Args:
        result_wait: seconds for which a result that cannot be stored is waited for.

    Attributes:
        is_over: set once the worker stops, and deliveries are given back instead.
        waiting: number of jobs whose results could not be stored yet.
    """

    def __init__(self, *, result_wait: float) -> None:
        self.is_over = asyncio.Event()
        self.waiting = 0
        self._result_wait = result_wait

    def backoff(self) -> Backoff:
        """Return the pauses after a failure. Make them only then, because most messages need none."""
        return Backoff(_PAUSE, _LONGEST_PAUSE)

    async def pause(self, seconds: float) -> bool:
        """Pause. Return whether to go on trying."""
        return not await pause(self.is_over, seconds)

    async def until_kept(self, keep: Callable[[], Awaitable[T]], *, job_id: str) -> T:
        """Call `keep` until it succeeds, and return its value.

        Raises:
            StateUnavailable: the worker stops (`is_over`), or the time for results is over.
        """
        try:
            return await keep()
        except StateUnavailable as error:
            first = error
        self.waiting += 1
        try:
            return await self._keep_again(keep, first, job_id)
        finally:
            self.waiting -= 1

    async def _keep_again(self, keep: Callable[[], Awaitable[T]], error: StateUnavailable, job_id: str) -> T:
        backoff, loop = self.backoff(), asyncio.get_running_loop()
        end = loop.time() + self._result_wait
        while (left := end - loop.time()) > 0:
            _log.warning("job %s: storing its result failed, will retry: %s", job_id, error)
            if not await self.pause(min(backoff.next(), left)):
                break
            try:
                return await keep()
            except StateUnavailable as again:
                error = again
        raise error
