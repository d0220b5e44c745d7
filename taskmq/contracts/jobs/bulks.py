"""Bulk operations in a job store, kept until they end, and for a while afterwards."""

from typing import Protocol

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk


class BulkStore(Protocol):
    """Bulks by their ids. Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`."""

    async def add(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk:
        """Store a new bulk with version 1, and the audit entry in the same transaction; return it.

        If a bulk has its id or its `unique_key` already, nothing is stored, and that bulk is returned.
        """
        ...

    async def get(self, bulk_id: str) -> Bulk | None:
        """Return the bulk; None if there is none (any more)."""
        ...

    async def page(self, tenant: str | None, *, after: str | None = None, limit: int = 50) -> list[Bulk]:
        """Return up to `limit` bulks of a tenant, or of all, after the id `after`, the last one first.

        Args:
            tenant: the tenant of the jobs; None: all bulks.
        """
        ...

    async def open(self, *, limit: int = 50) -> list[Bulk]:
        """Return up to `limit` running bulks, in the order in which they are due."""
        ...

    async def write(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk | None:
        """Replace the same version of this bulk, with the audit entry; return the stored bulk.

        Returns None, and changes nothing, if it has another version or does not exist.
        """
        ...

    async def forget(self, *, before: int) -> None:
        """Delete bulks that ended before this instant (ms)."""
        ...
