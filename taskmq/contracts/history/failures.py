"""Counts of failures by group, and the marks of groups, in a job store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.history.failure_groups import FailureKey, FailureMark
from taskmq.model.identity import AuditEntry


class FailureCount(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of a group in one step of time.

    Attributes:
        slot: number of the step; -1 for all earlier times.
        first, last: when they ended (ms).
        message: up to 200 characters of the message of one of them.
        first_worker: name of the worker of the first one; "" if no worker ran it.
    """

    key: FailureKey
    slot: int
    count: int
    first: int
    last: int
    message: str
    first_worker: str = ""


class FailureGroupStore(Protocol):
    """Counts of failures by tenant, task and error, and the marks of operators.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def counts(
        self, *, since: int, step: int, tenant: str | None = None, most: int = 10_000
    ) -> Sequence[FailureCount]:
        """Count failed jobs, expired jobs, and reported failures of sent jobs, by group and step.

        The newest `most` of each of the three kinds are counted, by submission or report.

        Args:
            since, step: start of the first step and length of each (ms).
            tenant: "" for jobs without a tenant, None for all.
        """
        ...

    async def marks(self, tenant: str | None = None) -> Sequence[FailureMark]:
        """Return the marks of a tenant, None for all, in the order of their keys."""
        ...

    async def put_mark(self, mark: FailureMark, *, audit: AuditEntry) -> None:
        """Set the mark of a group, and write the audit entry in the same transaction.

        Raises:
            LimitReached: see `check_marks`; the same transaction counts.
        """
        ...

    async def remove_mark(self, key: FailureKey, *, audit: AuditEntry) -> bool:
        """Remove the mark of a group; return whether it had one. Only then the audit entry is written."""
        ...

    async def forget(self, *, before: int) -> None:
        """Delete the marks of groups that were resolved, or whose muting ended, before an instant (ms)."""
        ...
