"""Time as a value that is passed in, so that tests can hold it still."""

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Wall-clock time, time that only grows, and sleeping until an instant."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC. Jumps when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go backwards: for durations, deadlines and pauses."""
        ...

    async def sleep_until(self, instant_ms: int) -> None:
        """Return once `now_ms() >= instant_ms`; at once when that is already so."""
        ...
