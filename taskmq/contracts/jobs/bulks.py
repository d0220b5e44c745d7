"""What is done to many jobs, kept until it is done, and for a while afterwards."""

from typing import Protocol

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk

__all__ = ["BulkStore"]


class BulkStore(Protocol):
    """Bulks, by their ids. Every method raises `StoreUnavailable` and `StoreMismatch` as those of `JobStore` do."""

    async def add(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk:
        """Keep a new one, with version 1, and the audit entry in the same transaction; returns it.

        Where one has its id or its `unique_key` already, nothing is kept, and that one is returned.
        """
        ...

    async def get(self, bulk_id: str) -> Bulk | None:
        """The bulk; None where there is none (any more)."""
        ...

    async def page(self, tenant: str | None, *, after: str | None = None, limit: int = 50) -> list[Bulk]:
        """Up to `limit` of a tenant's, or of everybody's, from behind the id `after`; the last one first.

        Args:
            tenant: whose jobs they are about; None: all there are.
        """
        ...

    async def open(self, *, limit: int = 50) -> list[Bulk]:
        """Up to `limit` that run, in the order in which they are due."""
        ...

    async def write(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk | None:
        """Keep this instead of the same version, and the audit entry with it; it as it is then.

        None, and nothing is changed, where it has another version, or is not there.
        """
        ...

    async def forget(self, *, before: int) -> None:
        """Forget those that have ended before this instant (ms)."""
        ...
