"""Identity: the part of a job store that knows users and their permissions."""

from typing import Protocol

from taskmq.contracts.identity.accounts import AccountStore
from taskmq.contracts.identity.credentials import CredentialStore
from taskmq.contracts.identity.entries import AuditStore


class IdentityStore(Protocol):
    """The identity parts of a job store; they share its lifetime."""

    @property
    def accounts(self) -> AccountStore:
        """Tenants, users, and their roles."""
        ...

    @property
    def credentials(self) -> CredentialStore:
        """Sessions, tokens, and failed logins."""
        ...

    @property
    def audit(self) -> AuditStore:
        """Actions of administrators and operators."""
        ...
