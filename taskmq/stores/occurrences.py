"""Which occurrences of schedules were emitted."""

from typing import Protocol

__all__ = ["OccurrenceStore"]


class OccurrenceStore(Protocol):
    """Which occurrences of schedules were emitted, so that any number of beats emit each one once."""

    async def claim(self, occurrence: str, *, owner: str, lease: float, ttl: float) -> bool:
        """Whether `owner` is to emit `occurrence` now.

        True for the first claim, and again for anybody once `lease` seconds have passed without `complete`:
        the owner may have died before it published. Remembered for `ttl` seconds.
        """
        ...

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        """The occurrence was published and confirmed: nobody claims it within `ttl` seconds."""
        ...
