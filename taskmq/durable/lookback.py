"""What a store has new since it was asked last, where it announces nothing.

    look:  read all that is from `since(now)` on  ->  keep what `is_new`  ->  `end(now)`

A transaction may be committed some time after the instant that its rows have. So each look reads a while back, and
knows what earlier ones have found.
"""

from typing import Final

__all__ = ["Lookback"]

_LATE: Final = 3_000


class Lookback:
    """Finds each entry once, if it is committed within 3 s. Times are the store's, in ms."""

    def __init__(self) -> None:
        # When each was.
        self._seen: dict[tuple[str, str], int] = {}
        self._until: int | None = None

    def since(self, now: int) -> int:
        """From when on this look reads."""
        return (now if self._until is None else self._until) - _LATE

    def is_new(self, key: tuple[str, str], at: int) -> bool:
        """Whether no look has found the entry yet; this one has, then.

        Args:
            key: the job, and what tells its entries apart.
        """
        if key in self._seen:
            return False
        self._seen[key] = at
        return True

    def end(self, now: int) -> bool:
        """Whether this look was the first one, whose entries are from before it; the next look begins where it began.

        A look that could not be made does not end: the next one finds what it would have found.
        """
        since = self.since(now)
        self._seen = {key: at for key, at in self._seen.items() if at >= since}
        is_first, self._until = self._until is None, now
        return is_first
