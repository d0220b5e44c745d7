"""Deliveries that are returned to their queue because of an unexpected failure.

An unexpected failure would recur immediately, in an endless loop. So each delivery waits before it is returned,
longer each time that its message arrives.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.broker import Delivery

_log = logging.getLogger("taskmq.worker")

_FIRST: Final = 1.0
_LONGEST: Final = 60.0
_REMEMBERED: Final = 1_000


class Returns:
    """Pending returns of one worker."""

    def __init__(self) -> None:
        self._waiting: dict[Delivery, asyncio.TimerHandle] = {}
        # By message; the most recent return is last.
        self._counts: dict[str, int] = {}
        self._is_closed = False

    def put(self, delivery: Delivery, error: BaseException) -> None:
        """Return a delivery after a pause, because of `error`."""
        name = delivery.message_id or ""
        count = self._counts.pop(name, 0) + 1
        self._counts[name] = count
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        seconds = min(_FIRST * 2 ** (count - 1), _LONGEST)
        _log.critical(
            "message %s could not be processed (failure %d): %s; requeueing it in %g s",
            delivery.message_id,
            count,
            type(error).__name__,
            seconds,
            exc_info=error,
        )
        if self._is_closed:
            delivery.requeue()
            return
        self._waiting[delivery] = asyncio.get_running_loop().call_later(seconds, self._give_back, delivery)

    def close(self) -> None:
        """Return all waiting deliveries, and later ones immediately, because the worker stops."""
        self._is_closed = True
        for delivery, timer in tuple(self._waiting.items()):
            timer.cancel()
            self._give_back(delivery)

    def _give_back(self, delivery: Delivery) -> None:
        del self._waiting[delivery]
        delivery.requeue()
