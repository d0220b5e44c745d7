"""Retention of ended jobs: pruning, reading by day, and deletion."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from taskmq.contracts.jobs.records import AttemptRecord, HistoryEntry, JobRecord


class KeptJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ended job with everything that the store keeps of it except its logs.

    Attributes:
        job: with its body and its result; of a large value only the reference.
        events, attempts: the earliest first.
    """

    job: JobRecord
    events: list[HistoryEntry] = []
    attempts: list[AttemptRecord] = []


@runtime_checkable
class Prunable(Protocol):
    """A job store that can delete ended jobs before its own retention does."""

    async def prune(self, *, keep_days: int) -> None:
        """Delete jobs that ended more than this many days ago, with all their data and their keys.

        Jobs that have not ended stay; events of theirs that are that old may be deleted.

        Raises:
            StoreUnavailable: it could not be reached; some may be deleted.
        """
        ...


@runtime_checkable
class Retaining(Protocol):
    """A job store whose ended jobs can be read day by day, and deleted one by one."""

    async def ended_days(self) -> list[int]:
        """Return the days (UTC, since the epoch) with ended jobs, the earliest first."""
        ...

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> list[KeptJob]:
        """Return up to `limit` jobs that ended on the day, in the order of their ids, after the id `after`."""
        ...

    async def forget_ended(self, ids: Sequence[str], *, keeps_keys: bool = False) -> int:
        """Delete those of the jobs that have ended for good, with all their data; return their number.

        Their events, attempts, progress, saved values, logs, failures and allocations are deleted, too, and so are
        their submitters' ids, which may be used again. Live and unknown jobs are not affected.

        Args:
            keeps_keys: whether their idempotency keys are remembered with the results for their time, instead of
                being free at once.
        """
        ...

    async def forget_tenant(self, tenant: str) -> None:
        """Delete the other data of a tenant.

        That is definitions with all their versions, logs, figures, failures, alerts with their rules, silences and
        notices, ended allocations, usage of quotas, and results of idempotency keys. Jobs, schedules, quotas,
        accounts and the audit stay. Logs and failures are deleted in pieces, so that other changes do not wait; after
        a failure, call it again.
        """
        ...
