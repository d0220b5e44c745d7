"""Who may do what over dictionaries: the reference that stores are compared with, and a store for tests."""

from collections.abc import Callable

from taskmq.testing.job_store.identity.accounts import MemoryAccounts
from taskmq.testing.job_store.identity.audit import MemoryAudit
from taskmq.testing.job_store.identity.credentials import MemoryCredentials
from taskmq.testing.job_store.identity.model import IdentityModel

__all__ = ["IdentityModel", "MemoryAccounts", "MemoryAudit", "MemoryCredentials", "MemoryIdentities"]


class MemoryIdentities:
    """An `IdentityStore` over a model.

    Args:
        look: called before anything else; returns the store's time, or raises where it is not to be had.
    """

    def __init__(self, model: IdentityModel, *, look: Callable[[], int]) -> None:
        self._accounts = MemoryAccounts(model, look)
        self._credentials = MemoryCredentials(model, look)
        self._audit = MemoryAudit(model, look)

    @property
    def accounts(self) -> MemoryAccounts:
        return self._accounts

    @property
    def credentials(self) -> MemoryCredentials:
        return self._credentials

    @property
    def audit(self) -> MemoryAudit:
        return self._audit
