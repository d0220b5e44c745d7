"""How long settling waits for a broker or a state that does not answer: until the worker stops.

A slot that waits is better than a task that runs twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from taskmq.durable.service import pause
from taskmq.errors import StateUnavailable
from taskmq.model.backoff import Backoff

__all__ = ["SettlingPatience"]

_log = logging.getLogger("taskmq.worker")

_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0

T = TypeVar("T")


class SettlingPatience:
    """What everything that settles waits by.

    Attributes:
        is_over: set once deliveries are given back instead.
    """

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    def backoff(self) -> Backoff:
        """The pauses of something that has failed; to be made then, for most messages need none."""
        return Backoff(_PAUSE, _LONGEST_PAUSE)

    async def pause(self, seconds: float) -> bool:
        """Whether to go on trying."""
        return not await pause(self.is_over, seconds)

    async def until_kept(self, keep: Callable[[], Awaitable[T]], *, job_id: str) -> T:
        """What `keep` returns, once the state has answered.

        Raises:
            StateUnavailable: it has not, and the worker stops.
        """
        backoff: Backoff | None = None
        while True:
            try:
                return await keep()
            except StateUnavailable as error:
                _log.warning("result of job %s is not stored yet: %s", job_id, error)
                backoff = backoff or self.backoff()
                if not await self.pause(backoff.next()):
                    raise
