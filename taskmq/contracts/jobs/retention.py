"""For how long ended jobs are kept, and what can be done with them before that, and beyond it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from taskmq.contracts.jobs.records import AttemptRecord, HistoryEntry, JobRecord

__all__ = ["KeptJob", "Prunable", "Retaining"]


class KeptJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ended job with everything that the store keeps of it beside its logs.

    Attributes:
        job: with its body and its result; of a large value only the reference.
        events, attempts: the earliest first.
    """

    job: JobRecord
    events: list[HistoryEntry] = []
    attempts: list[AttemptRecord] = []


@runtime_checkable
class Prunable(Protocol):
    """A job store that forgets ended jobs before the time for which it keeps them."""

    async def prune(self, *, keep_days: int) -> None:
        """Forget jobs that ended longer ago than so many days, with all that is kept about them, and their keys.

        Jobs that have not ended stay; of what happened to those, what is that old may be forgotten.

        Raises:
            StoreUnavailable: it could not be reached; some may be forgotten.
        """
        ...


@runtime_checkable
class Retaining(Protocol):
    """A job store whose ended jobs can be read day by day, and forgotten one by one."""

    async def ended_days(self) -> list[int]:
        """The days (UTC, counted from the epoch) on which jobs ended that are kept, the earliest first."""
        ...

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> list[KeptJob]:
        """Up to `limit` jobs that ended on the day, in the order of their ids, from behind the id `after`."""
        ...

    async def forget_ended(self, ids: Sequence[str]) -> int:
        """Forget those of the jobs that have ended for good, with all that is kept about them; how many there were.

        Their events, attempts, logs and failures and what they had of nodes go too, and the ids of their submitters,
        which may be used again. Those that live, and unknown ones, stay what they are.
        """
        ...

    async def forget_tenant(self, tenant: str) -> None:
        """Forget what else is kept of a tenant.

        That is definitions with all their versions, logs, figures, failures, alerts with their rules, silences and
        notices, allocations that have ended, and what was submitted under quotas. Jobs, schedules, quotas,
        accounts and the audit stay. Of very many logs and failures some are forgotten at a time, so that other
        changes do not wait; what fails in between is done by doing it again.
        """
        ...
