"""Figures by the minute, and failures of the broker lane, in a job store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, RunFailure

__all__ = ["FailureFilter", "FailurePage", "RollupFilter", "RollupStore"]


class RollupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which figures: of minutes from `since` on and before `until`, ms; None: of any task, queue or tenant.

    Attributes:
        step: of minutes, or added up of quarters of an hour (`QUARTER`); `since` and `until` are then whole ones.
        tenants: those of any of these, of minutes; None: of any.
        is_whole: those of all tenants added up, under the tenant "".
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
    """A choice of failures: what is not said does not matter; `since` and `until` as for figures.

    Attributes:
        jobs: those of any of these jobs; None: of any.
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
    """Some failures; `after` is where the next page begins, None where there is none."""

    failures: list[RunFailure]
    after: int | None


class RollupStore(Protocol):
    """What is remembered of what workers have reported.

    Every method raises `StoreUnavailable` and `StoreMismatch` as those of `JobStore` do.
    """

    async def add(self, rollups: Sequence[Rollup], failures: Sequence[RunFailure] = ()) -> None:
        """Add figures to those that there are, and keep failures; all in one transaction."""
        ...

    async def rollups(
        self, which: RollupFilter, *, after: RollupKey | None = None, limit: int = 50_000
    ) -> list[Rollup]:
        """The first `limit` figures that fit, in the order of their keys, from behind the key `after`."""
        ...

    async def failures(self, which: FailureFilter, *, after: int | None = None, limit: int = 50) -> FailurePage:
        """Up to `limit` failures that fit, the last one first, from behind the number `after`."""
        ...

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        """Forget up to `limit` figures and as many failures from before an instant (ms); how many they were."""
        ...
