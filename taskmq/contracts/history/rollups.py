"""Figures by the minute, and failures of broker jobs, in a job store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, RunFailure


class RollupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on figures: minutes from `since` and before `until`, ms; None matches any task, queue or tenant.

    Attributes:
        step: minutes, or sums of quarters of an hour (`QUARTER`) or of days in UTC (`DAY`); `since` and `until` are
            then whole ones.
        tenants: any of these tenants, for minutes; None: any tenant.
        is_whole: whether to sum all tenants, under the tenant ""; not for days.
    """

    since: int
    until: int
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    tenants: frozenset[str] | None = None
    step: int = MINUTE
    is_whole: bool = False


class FailureFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on failures: an unset one matches all; `since` and `until` as for figures.

    Attributes:
        jobs: any of these jobs; None: any job.
    """

    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    job: str | None = None
    jobs: frozenset[str] | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None


class FailurePage(msgspec.Struct, frozen=True):
    """A page of failures; `after` is the cursor of the next page, None on the last one."""

    failures: list[RunFailure]
    after: int | None


class RollupStore(Protocol):
    """Figures and failures that workers reported.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def add(self, rollups: Sequence[Rollup], failures: Sequence[RunFailure] = ()) -> None:
        """Add to the stored figures, and store failures, in one transaction."""
        ...

    async def rollups(
        self, which: RollupFilter, *, after: RollupKey | None = None, limit: int = 50_000
    ) -> list[Rollup]:
        """Return the first `limit` matching figures, in the order of their keys, after the key `after`."""
        ...

    async def failures(self, which: FailureFilter, *, after: int | None = None, limit: int = 50) -> FailurePage:
        """Return up to `limit` matching failures, the last one first, after the number `after`."""
        ...

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        """Delete up to `limit` figures and as many failures from before an instant (ms); return their number."""
        ...
