"""What is done to many jobs, over a dictionary: the part of a `MemoryJobStore` that keeps it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk

__all__ = ["BulksAtWork", "MemoryBulks"]


class BulksAtWork(NamedTuple):
    """The bulks by their ids, the time, and how the audit is written."""

    bulks: dict[str, Bulk]
    now: int
    note: Callable[[int, Sequence[AuditEntry]], None]


class MemoryBulks:
    """A `BulkStore` over dictionaries, for tests.

    Args:
        at_work: gives what is there, or says why there is nothing.
    """

    def __init__(self, at_work: Callable[[], BulksAtWork]) -> None:
        self._at_work = at_work

    async def add(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk:
        at_work = self._at_work()
        for known in at_work.bulks.values():
            if known.id == bulk.id or (bulk.key and known.unique_key == bulk.unique_key):
                return known
        made = at_work.bulks[bulk.id] = replace(bulk, version=1)
        at_work.note(at_work.now, [] if audit is None else [audit])
        return made

    async def get(self, bulk_id: str) -> Bulk | None:
        return self._at_work().bulks.get(bulk_id)

    async def page(self, tenant: str | None, *, after: str | None = None, limit: int = 50) -> list[Bulk]:
        found = [
            bulk
            for key, bulk in sorted(self._at_work().bulks.items(), reverse=True)
            if (tenant is None or bulk.tenant == tenant) and (after is None or key < after)
        ]
        return found[:limit]

    async def open(self, *, limit: int = 50) -> list[Bulk]:
        found = [bulk for bulk in self._at_work().bulks.values() if bulk.ended is None]
        return sorted(found, key=lambda bulk: (bulk.due, bulk.id))[:limit]

    async def write(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk | None:
        at_work = self._at_work()
        known = at_work.bulks.get(bulk.id)
        if known is None or known.version != bulk.version:
            return None
        written = at_work.bulks[bulk.id] = replace(bulk, version=bulk.version + 1)
        at_work.note(at_work.now, [] if audit is None else [audit])
        return written

    async def forget(self, *, before: int) -> None:
        bulks = self._at_work().bulks
        for key in [key for key, bulk in bulks.items() if bulk.ended is not None and bulk.ended < before]:
            del bulks[key]
