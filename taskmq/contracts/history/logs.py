"""Lines of logs in a job store."""

from collections.abc import Sequence
from typing import Protocol

from taskmq.model.history.logs import LogFilter, LogPage, RunLog

__all__ = ["LogStore"]


class LogStore(Protocol):
    """Lines that runs have logged.

    Every method raises `StoreUnavailable` and `StoreMismatch` as those of `JobStore` do.
    """

    async def add(self, logs: Sequence[RunLog]) -> int:
        """Keep lines, all in one transaction; how many there are now that were not there before.

        Lines count only with the token of a job that is under way; of others nothing is kept. A line that is there
        already, by its run and number, stays as it is.
        """
        ...

    async def page(
        self, which: LogFilter, *, after: int | None = None, limit: int = 50, oldest_first: bool = False
    ) -> LogPage:
        """Up to `limit` lines that fit, the last one kept first, from behind the number `after`.

        Args:
            oldest_first: the other way round, as one follows a log: `after` is then always the last line's number.
        """
        ...

    async def forget(self, *, level: int, before: int, limit: int = 1_000) -> int:
        """Forget up to `limit` lines of exactly this level, from before an instant (ms); how many they were."""
        ...
