"""Detection of new entries in a store that does not announce them.

    look: read all entries since `since(now)` -> keep those that are `is_new` -> `end(now)`

A transaction may be committed some time after the instant in its rows. So each look reads further back, and knows
what earlier ones found.
"""

from typing import Final

_LATE: Final = 3_000


class Lookback:
    """Finds each entry once, if it is committed within 3 s. Times are the store's, in ms.

    Args:
        past: how far back the first look reads.
    """

    def __init__(self, *, past: int = _LATE) -> None:
        self._past = past
        # When each was.
        self._seen: dict[tuple[str, str], int] = {}
        self._until: int | None = None

    def since(self, now: int) -> int:
        """Return the instant from which this look reads."""
        return now - self._past if self._until is None else self._until - _LATE

    def has_seen(self, key: tuple[str, str]) -> bool:
        """Return whether an earlier look found the entry."""
        return key in self._seen

    def is_new(self, key: tuple[str, str], at: int) -> bool:
        """Return whether no earlier look found the entry; this one has found it then.

        Args:
            key: the job, and what distinguishes its entries.
        """
        if key in self._seen:
            return False
        self._seen[key] = at
        return True

    def end(self, now: int) -> bool:
        """End a look; return whether it was the first one, whose entries are older.

        The next look starts where it started.

        A look that failed does not end: the next one finds its entries.
        """
        since = self.since(now)
        self._seen = {key: at for key, at in self._seen.items() if at >= since}
        is_first, self._until = self._until is None, now
        return is_first
