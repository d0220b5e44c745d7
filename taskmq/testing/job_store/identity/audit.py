"""The audit over a list."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from taskmq.contracts.identity import AuditFilter, AuditPage
from taskmq.model.identity import AuditEntry, AuditRecord, ChainLink, Scope, sealed
from taskmq.testing.job_store.identity.model import IdentityModel

__all__ = ["MemoryAudit"]


class MemoryAudit:
    """An `AuditStore` over a list, for tests."""

    def __init__(self, model: IdentityModel, look: Callable[[], int]) -> None:
        self._model = model
        self._look = look

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        self._model.note(self._look(), entries)

    async def entries(
        self, scope: Scope, which: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> AuditPage:
        self._look()
        found = [
            record
            for record in reversed(self._model.audit)
            if (after is None or record.number < after) and scope.has(record.tenant) and _fits(which, record)
        ]
        return AuditPage(found[:limit], found[limit - 1].number if len(found) > limit else None)

    async def seal(self, *, limit: int = 500) -> int:
        self._look()
        places = [place for place, record in enumerate(self._model.audit) if record.position is None][:limit]
        links = sealed(await self.head(), [self._model.audit[place] for place in places])
        for place, each in zip(places, links, strict=True):
            self._model.audit[place] = replace(self._model.audit[place], position=each.position, hash=each.hash)
        return len(links)

    async def head(self) -> ChainLink:
        chain = self._chain()
        if not chain:
            return ChainLink()
        last = chain[-1]
        assert last.position is not None
        assert last.hash is not None
        return ChainLink(last.position, last.hash)

    async def chain(self, *, after: int = 0, limit: int = 500) -> list[AuditRecord]:
        return self._chain()[after : after + limit]

    async def unsealed(self) -> int:
        self._look()
        return sum(record.position is None for record in self._model.audit)

    def _chain(self) -> list[AuditRecord]:
        self._look()
        return sorted(
            (record for record in self._model.audit if record.position is not None),
            key=lambda record: record.position or 0,
        )


def _fits(which: AuditFilter, record: AuditRecord) -> bool:
    return (
        record.action.startswith(which.action)
        and which.user_id in ("", record.user_id)
        and which.kind in ("", record.kind)
        and which.subject in ("", record.subject)
        and (which.since is None or record.at >= which.since)
        and (which.until is None or record.at < which.until)
    )
