"""Driver of an identity store for tests."""

import uuid
from typing import Any, Final

from taskmq.contracts.identity import (
    Actor,
    ApiToken,
    AuditFilter,
    BrowserSession,
    NewApiToken,
    NewBrowserSession,
    NewUser,
    Tenant,
    User,
    UserAccount,
)
from taskmq.contracts.jobs import JobStore
from taskmq.model.identity import EVERYTHING_OF_ALL, EVERYWHERE, AuditRecord, Membership, Role, SecretKey, session_key
from taskmq.testing.job_store_suite.case import JobStoreCase

HOUR: Final = 3_600_000
BY: Final = Actor(
    user_id="u-1", user="root ☂", via="session", credential="s-1", address="192.0.2.7", request_id="r-1", note="why"
)


def secret() -> SecretKey:
    """Return a secret that no user has."""
    return session_key(uuid.uuid4().bytes + uuid.uuid4().bytes)


class People:
    """Adds tenants, users and credentials to a store, and reads them back."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.accounts = store.identity.accounts
        self.credentials = store.identity.credentials
        self.audit = store.identity.audit

    async def tenant(self, name: str = "acme", **fields: Any) -> Tenant:
        return await self.accounts.add_tenant(Tenant(name=name, **fields), by=BY)

    async def user(self, name: str = "ann", *memberships: Membership, **fields: Any) -> User:
        new = NewUser(id=str(uuid.uuid4()), name=name, memberships=memberships, **fields)
        return await self.accounts.add_user(new, by=BY)

    async def admin(self, name: str = "root") -> User:
        """Add an admin of the instance."""
        return await self.user(name, Membership(EVERYWHERE, Role.ADMIN))

    async def session(self, user: User, key: SecretKey | None = None, **fields: Any) -> BrowserSession:
        """Add a session with a secret, valid for an idle hour and two hours at most."""
        given: dict[str, Any] = {"idle_ms": HOUR, "longest_ms": 2 * HOUR, **fields}
        digest = (key or secret()).digest
        new = NewBrowserSession(id=str(uuid.uuid4()), user_id=user.id, digest=digest, **given)
        return await self.credentials.add_session(new, by=BY)

    async def token(self, user: User, key: SecretKey | None = None, **fields: Any) -> ApiToken:
        given: dict[str, Any] = {"name": f"t-{uuid.uuid4()}", **fields}
        new = NewApiToken(id=str(uuid.uuid4()), user_id=user.id, digest=(key or secret()).digest, **given)
        return await self.credentials.add_token(new, by=BY)

    async def account(self, user: User) -> UserAccount:
        found = await self.accounts.account(user.id)
        assert found is not None
        return found

    async def entries(self, action: str = "") -> list[AuditRecord]:
        """Return all audit entries of the action, oldest first."""
        page = await self.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action=action), limit=1000)
        assert page.after is None
        return page.entries[::-1]

    async def actions(self) -> list[str]:
        return [record.action for record in await self.entries()]


class IdentityCase(JobStoreCase):
    """Base of a test of identities."""

    def people(self) -> People:
        """Return a driver of a store that is closed at the end of the test."""
        return People(self.store())
