"""Log lines in a job store."""

from collections.abc import Sequence
from typing import Protocol

from taskmq.model.history.logs import LogFilter, LogPage, RunLog


class LogStore(Protocol):
    """Lines that runs logged.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def add(self, logs: Sequence[RunLog]) -> int:
        """Store lines in one transaction; return the number of new ones.

        Lines of a stored job count only with the token of a job in flight; others are not stored. Lines of sent jobs
        never become a stored job's. A line that exists already, by its run and number, stays unchanged.
        """
        ...

    async def page(
        self, which: LogFilter, *, after: int | None = None, limit: int = 50, oldest_first: bool = False
    ) -> LogPage:
        """Return up to `limit` matching lines, the last stored first, after the number `after`.

        Args:
            oldest_first: in the order of a followed log: `after` is then always the last line's number.
        """
        ...

    async def forget(self, *, level: int, before: int, limit: int = 1_000) -> int:
        """Delete up to `limit` lines of exactly this level from before an instant (ms); return their number."""
        ...
