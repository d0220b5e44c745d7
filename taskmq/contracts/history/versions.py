"""Versions of the app that workers announced, in a job store."""

from collections.abc import Collection, Sequence
from typing import Protocol

from taskmq.model.telemetry.app_versions import AppVersion, WorkerVersion


class VersionStore(Protocol):
    """Versions that schedulers heard from workers: one row per worker and version.

    Several schedulers report the same workers, by clocks that differ a little: a row keeps its first report and the
    latest instant. Schedulers delete rows 30 days after their last report.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def report(self, versions: Collection[tuple[str, str]], *, at: int) -> None:
        """Record the versions that workers run.

        Args:
            versions: pairs of a worker's name and a version.
            at: ms since the epoch.
        """
        ...

    async def versions(self, *, since: int, until: int, limit: int = 1_000) -> list[AppVersion]:
        """Return the versions that workers ran from `since` and before `until`, by the time of their first report.

        If there are more than `limit`, the latest are returned.
        """
        ...

    async def of_workers(self, workers: Sequence[str]) -> list[WorkerVersion]:
        """Return the versions of workers by name, by the time of their first report."""
        ...

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        """Delete up to `limit` rows that were last reported before an instant (ms); return their number."""
        ...
