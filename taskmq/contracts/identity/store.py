"""All that a store knows of who may do what."""

from typing import Protocol

from taskmq.contracts.identity.accounts import AccountStore
from taskmq.contracts.identity.credentials import CredentialStore
from taskmq.contracts.identity.entries import AuditStore

__all__ = ["IdentityStore"]


class IdentityStore(Protocol):
    """The parts of a job store that know who may do what; they live and end with it."""

    @property
    def accounts(self) -> AccountStore:
        """Tenants, users, and their roles."""
        ...

    @property
    def credentials(self) -> CredentialStore:
        """Sessions, tokens, and logins that failed."""
        ...

    @property
    def audit(self) -> AuditStore:
        """What administrators and operators have done."""
        ...
