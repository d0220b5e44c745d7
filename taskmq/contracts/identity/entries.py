"""Audit: actions of administrators and operators, and their hash chain."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.identity import AuditEntry, AuditRecord, ChainLink, Scope


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that entries must match; an unset one matches all.

    Attributes:
        action: prefix: `user.` matches all actions on users.
        since, until: half-open range, ms since the epoch.
    """

    action: str = ""
    user_id: str = ""
    kind: str = ""
    subject: str = ""
    since: int | None = None
    until: int | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """A page of entries, the last one first.

    Attributes:
        after: cursor of the next page; None on the last one.
    """

    entries: list[AuditRecord]
    after: int | None


class AuditStore(Protocol):
    """Audit entries: they are added, read and sealed, and only `AccountStore.erase_user` changes them.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Record an action outside of this store, such as at the broker, before it is performed.

        The store itself records its own changes.
        """
        ...

    async def entries(
        self, scope: Scope, which: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> AuditPage:
        """Return entries of the scope's tenants, the last one first, after the number `after`."""
        ...

    async def seal(self, *, limit: int = 500) -> int:
        """Append up to `limit` unsealed entries to the chain; return their number. Concurrent calls are safe."""
        ...

    async def head(self) -> ChainLink:
        """Return the end of the chain."""
        ...

    async def chain(self, *, after: int = 0, limit: int = 500) -> list[AuditRecord]:
        """Return up to `limit` sealed entries after the position `after`, in the order of the chain."""
        ...

    async def count_unsealed(self) -> int:
        """Return the number of entries that are not sealed."""
        ...
