"""Time as a value that is passed in, so that tests can control it."""

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, monotonic time, and sleeping until an instant."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC. Jumps when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. They never go backwards; use them for durations and deadlines."""
        ...

    async def sleep_until(self, instant_ms: int) -> None:
        """Return once `now_ms() >= instant_ms`; immediately if that is already true."""
        ...
