"""Detection of a connection that is open on this side only.

RabbitMQ sends something at least once per heartbeat interval. pika checks that every heartbeat plus five seconds and
gives up after a whole round of silence, which can take more than two heartbeats.
"""

import asyncio
from collections.abc import Callable
from typing import Final

_TICKS_PER_HEARTBEAT: Final = 4
# One and a half heartbeats of silence, found at most a tick later.
_SILENT_TICKS: Final = 6


class SilenceDetector:
    """Calls `on_silence` once nothing has been received for 1.5 to 1.75 heartbeats.

    It counts its own ticks and not the time: after a blocked loop there is unread data.

    Args:
        heartbeat: interval in seconds; 0 disables the detector.
        received: returns the number of bytes received so far.
    """

    def __init__(
        self,
        heartbeat: float,
        received: Callable[[], int],
        on_silence: Callable[[], None],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._pause = heartbeat / _TICKS_PER_HEARTBEAT
        self._received = received
        self._on_silence = on_silence
        self._loop = loop
        self._seen = received()
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        if heartbeat:
            self._wait()

    def stop(self) -> None:
        """Stop watching. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        received = self._received()
        self._silent = 0 if received != self._seen else self._silent + 1
        self._seen = received
        if self._silent >= _SILENT_TICKS:
            self._on_silence()
        else:
            self._wait()
