"""The audit: what administrators and operators have done, and its chain of hashes."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.identity import AuditEntry, AuditRecord, ChainLink, Scope

__all__ = ["AuditFilter", "AuditPage", "AuditStore"]


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that fit all of what is said; an empty field says nothing.

    Attributes:
        action: its beginning: `user.` are all actions on users.
        since, until: ms since the epoch; at or after, and before.
    """

    action: str = ""
    user_id: str = ""
    kind: str = ""
    subject: str = ""
    since: int | None = None
    until: int | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """Some entries, the last one first.

    Attributes:
        after: where the next page begins; None where there is none.
    """

    entries: list[AuditRecord]
    after: int | None


class AuditStore(Protocol):
    """Entries that are added, read and sealed, and never changed but by `AccountStore.erase_user`.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Write down what was done elsewhere than in this store, such as at the broker, before it is done.

        What this store changes writes its entries itself.
        """
        ...

    async def entries(
        self, scope: Scope, which: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> AuditPage:
        """Entries of the scope's tenants, the last one first, from behind the number `after`."""
        ...

    async def seal(self, *, limit: int = 500) -> int:
        """Add up to `limit` entries that are not in the chain to its end; how many. Several may do so at a time."""
        ...

    async def head(self) -> ChainLink:
        """The end of the chain."""
        ...

    async def chain(self, *, after: int = 0, limit: int = 500) -> list[AuditRecord]:
        """Up to `limit` sealed entries from behind the position `after`, in the order of the chain."""
        ...

    async def unsealed(self) -> int:
        """How many entries are not in the chain."""
        ...
