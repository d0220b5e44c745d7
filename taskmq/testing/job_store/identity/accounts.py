"""Tenants, users and roles over dictionaries."""

from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.contracts.identity import Actor, NewUser, Tenant, Trail, User, UserAccount, UserChange
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import EVERYWHERE, AuditRecord, Membership, Role, Scope
from taskmq.testing.job_store.identity.model import IdentityModel

__all__ = ["MemoryAccounts"]


class MemoryAccounts:
    """An `AccountStore` over dictionaries, for tests."""

    def __init__(self, model: IdentityModel, look: Callable[[], int]) -> None:
        self._model = model
        self._look = look

    async def add_tenant(self, tenant: Tenant, *, by: Actor) -> Tenant:
        now = self._look()
        if tenant.name in self._model.tenants:
            raise IdentityConflict(f"there is a tenant {tenant.name!r} already")
        added = self._model.tenants[tenant.name] = replace(tenant, created=now, disabled=None)
        self._model.note(now, [Trail(by).tenant_added(added)])
        return added

    async def tenants(self, scope: Scope) -> list[Tenant]:
        self._look()
        return [tenant for name, tenant in sorted(self._model.tenants.items()) if scope.has(name)]

    async def change_tenant(
        self, name: str, *, by: Actor, description: str | None = None, is_disabled: bool | None = None
    ) -> Tenant:
        now = self._look()
        before = self._model.tenant(name)
        after = before if description is None else replace(before, description=description)
        if is_disabled is not None:
            after = replace(after, disabled=(before.disabled or now) if is_disabled else None)
        self._model.tenants[name] = after
        self._model.note(now, [Trail(by).tenant_changed(before, after)])
        return after

    async def remove_tenant(self, name: str, *, by: Actor) -> None:
        now = self._look()
        tenant = self._model.tenant(name)
        for key in [key for key in self._model.memberships if key[1] == name]:
            del self._model.memberships[key]
        del self._model.tenants[name]
        self._model.note(now, [Trail(by).tenant_removed(tenant)])

    async def add_user(self, user: NewUser, *, by: Actor, is_first: bool = False) -> User:
        now = self._look()
        if is_first and self._model.admins():
            raise IdentityConflict("the instance has an admin already")
        self._check_name(user.name)
        for membership in user.memberships:
            self._check_tenant(membership.tenant)
        added = User(
            id=user.id,
            name=user.name,
            email=user.email,
            created=now,
            password_changed=now if user.password_hash else None,
        )
        self._model.users[user.id] = added
        self._model.passwords[user.id] = user.password_hash
        trail = Trail(by)
        entries = [trail.user_added(user)]
        for membership in user.memberships:
            self._model.memberships[user.id, membership.tenant] = membership
            entries.append(trail.role_set(user.id, None, membership))
        self._model.note(now, entries)
        return added

    async def account(self, user_id: str) -> UserAccount | None:
        self._look()
        user = self._model.users.get(user_id)
        return None if user is None else self._model.account(user)

    async def account_named(self, name: str) -> tuple[UserAccount, str] | None:
        self._look()
        if (user := self._named(name)) is None:
            return None
        return self._model.account(user), self._model.passwords[user.id]

    async def users(self, *, after: str = "", limit: int = 50) -> list[User]:
        self._look()
        found = sorted(self._model.users.values(), key=lambda user: user.name.casefold())
        return [user for user in found if user.name.casefold() > after.casefold()][:limit]

    async def change_user(self, user_id: str, change: UserChange, *, by: Actor) -> User:
        now = self._look()
        before = self._model.user(user_id)
        if change.version not in (None, before.version):
            raise IdentityConflict(
                f"user {before.name!r} was changed meanwhile: their version is {before.version}",
                version=before.version,
            )
        if change.name is not UNSET and change.name.casefold() != before.name.casefold():
            self._check_name(change.name)
        after = replace(
            before,
            version=before.version + 1,
            name=before.name if change.name is UNSET else change.name,
            email=before.email if change.email is UNSET else change.email,
        )
        if change.is_disabled is not UNSET:
            if change.is_disabled:
                self._model.keep_an_admin(user_id)
                self._model.end_sessions(user_id)
            after = replace(after, disabled=(before.disabled or now) if change.is_disabled else None)
        if change.password_hash is not UNSET:
            after = replace(after, password_changed=now if change.password_hash else None)
            self._model.passwords[user_id] = change.password_hash
            self._model.end_sessions(user_id, but=change.keep_session)
        self._model.users[user_id] = after
        self._model.note(now, Trail(by).user_changed(before, after, change))
        if change.revokes_tokens:
            self._model.note(now, [Trail(by).token_revoked(token) for token in self._model.revoke_tokens(user_id)])
        return after

    async def rehash_password(self, user_id: str, *, before: str, after: str) -> None:
        self._look()
        if self._model.passwords.get(user_id) == before:
            self._model.passwords[user_id] = after

    async def erase_user(self, user_id: str, *, by: Actor) -> None:
        now = self._look()
        self._model.user(user_id)
        self._model.keep_an_admin(user_id)
        self._model.end_sessions(user_id)
        for digest, secret in list(self._model.secrets.items()):
            if secret.token is not None and secret.token.user_id == user_id:
                del self._model.secrets[digest]
        for key in [key for key in self._model.memberships if key[0] == user_id]:
            del self._model.memberships[key]
        del self._model.users[user_id], self._model.passwords[user_id]
        self._model.note(now, [Trail(by).user_erased(user_id)])
        self._model.audit = [_without(user_id, record) for record in self._model.audit]

    async def set_membership(self, user_id: str, membership: Membership, *, by: Actor) -> None:
        now = self._look()
        self._model.user(user_id)
        self._check_tenant(membership.tenant)
        if membership.tenant == EVERYWHERE and membership.role is not Role.ADMIN:
            self._model.keep_an_admin(user_id)
        before = self._model.memberships.get((user_id, membership.tenant))
        self._model.memberships[user_id, membership.tenant] = membership
        self._model.note(now, [Trail(by).role_set(user_id, before, membership)])

    async def remove_membership(self, user_id: str, tenant: str, *, by: Actor) -> None:
        now = self._look()
        if (before := self._model.memberships.get((user_id, tenant))) is None:
            raise IdentityNotFound(f"user {user_id!r} has no role in {tenant!r}")
        if tenant == EVERYWHERE:
            self._model.keep_an_admin(user_id)
        del self._model.memberships[user_id, tenant]
        self._model.note(now, [Trail(by).role_removed(user_id, before)])

    async def members(self, scope: Scope) -> list[tuple[User, Membership]]:
        self._look()
        found = [
            (self._model.users[user_id], membership)
            for (user_id, tenant), membership in self._model.memberships.items()
            if scope.has(tenant)
        ]
        return sorted(found, key=lambda each: (each[1].tenant, each[0].name.casefold()))

    def _named(self, name: str) -> User | None:
        return next((user for user in self._model.users.values() if user.name.casefold() == name.casefold()), None)

    def _check_name(self, name: str) -> None:
        if self._named(name) is not None:
            raise IdentityConflict(f"there is a user {name!r} already")

    def _check_tenant(self, name: str) -> None:
        if name != EVERYWHERE:
            self._model.tenant(name)


def _without(user_id: str, record: AuditRecord) -> AuditRecord:
    """An entry without what it says about the person."""
    if record.user_id == user_id:
        record = replace(record, who=None, who_salt=None)
    if (record.kind, record.subject) == ("user", user_id):
        record = replace(record, what=None, what_salt=None)
    return record
