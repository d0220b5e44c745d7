"""A store in this process and the objects that give access to it."""

import uuid

from taskmq.access import Access, IdentityAdministration, PasswordHasher, SessionTimes
from taskmq.contracts.identity import Actor, AuditFilter, NewUser, User
from taskmq.model.identity import EVERYWHERE, AuditRecord, Membership, Role, Scope
from taskmq.testing import FakeClock
from tests.unit.store_kit import Database, StagedStore

PASSWORD = "ostrich lamp violet nine"
BY = Actor(user="tests")


class House:
    """A database and any number of servers on it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.database = Database(self.clock)
        # As cheap as possible: the cost of a hash proves nothing here.
        self.hasher = PasswordHasher(time_cost=1, memory_cost=8)
        self.store = StagedStore(self.database, clock=self.clock)
        self.access = self.server()
        self.administration = IdentityAdministration(self.store.identity, hasher=self.hasher, access=self.access)

    def open_store(self) -> StagedStore:
        """Open the store for one more server."""
        return StagedStore(self.database, clock=self.clock)

    def server(self, times: SessionTimes | None = None, *, store: StagedStore | None = None) -> Access:
        store = store or self.open_store()
        return Access(store.identity, clock=self.clock, hasher=self.hasher, times=times or SessionTimes())

    async def audit(self) -> list[AuditRecord]:
        """Return the audit entries, newest last."""
        page = await self.store.identity.audit.entries(Scope(None), AuditFilter(), limit=1000)
        return page.entries[::-1]

    def password(self, user_id: str) -> str:
        """Return the hash of the user's password."""
        ((kept,),) = self.database.ask("SELECT password FROM user WHERE id = ?", user_id)
        return str(kept)

    async def user(self, name: str = "ann", role: Role = Role.ADMIN, tenant: str = EVERYWHERE) -> User:
        if tenant != EVERYWHERE:
            await self.administration.add_tenant(tenant, by=BY)
        return await self.administration.add_user(name, PASSWORD, memberships=[Membership(tenant, role)], by=BY)

    async def import_user(self, name: str, password_hash: str) -> User:
        """Add a user whose hash was computed elsewhere."""
        new = NewUser(id=str(uuid.uuid4()), name=name, password_hash=password_hash)
        return await self.store.identity.accounts.add_user(new, by=BY)
