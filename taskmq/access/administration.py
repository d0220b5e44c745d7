"""Administration of tenants, users, roles and tokens."""

import secrets
import uuid
from collections.abc import Collection
from typing import Final

import msgspec

from taskmq.access.access import Access
from taskmq.access.passwords import PasswordHasher
from taskmq.contracts.identity import (
    Actor,
    ApiToken,
    IdentityStore,
    NewApiToken,
    NewUser,
    Tenant,
    User,
    UserAccount,
    UserChange,
)
from taskmq.errors import IdentityNotFound
from taskmq.model.identity import (
    EVERYWHERE,
    Identity,
    Membership,
    Permission,
    Role,
    Scope,
    check_group,
    check_name,
    check_pattern,
    check_text,
    token_key,
)

_NO_CHANGE: Final = UserChange()


class NewSecret(msgspec.Struct, frozen=True):
    """A new token with its secret, which is shown once and not stored."""

    token: ApiToken
    secret: str


class PasswordSet(msgspec.Struct, frozen=True):
    """The effects of a new password on sessions and tokens.

    Attributes:
        sessions_ended, tokens_revoked: their numbers.
        tokens_left: the number of tokens still valid.
    """

    sessions_ended: int
    tokens_revoked: int
    tokens_left: int


class IdentityAdministration:
    """Administration of accounts. Permissions are checked by the caller (`Access.authorise`).

    Args:
        access: the cache to clear after changes; None if no users are served, as on the command line.
    """

    def __init__(self, store: IdentityStore, *, hasher: PasswordHasher, access: Access | None = None) -> None:
        self._store = store
        self._hasher = hasher
        self._access = access

    async def add_first_admin(self, name: str, password: str, *, by: Actor) -> User:
        """Add the instance's first admin.

        Raises:
            IdentityConflict: there already is one.
            InvalidOption: the name or password is invalid.
        """
        user = await self._new_user(name, password, (Membership(EVERYWHERE, Role.ADMIN),))
        return await self._store.accounts.add_user(user, by=by, is_first=True)

    async def add_user(
        self,
        name: str,
        password: str | None,
        *,
        by: Actor,
        email: str = "",
        memberships: Collection[Membership] = (),
    ) -> User:
        """Add a user. A user without a password can only use API tokens.

        Raises:
            IdentityConflict: the name is in use.
            InvalidOption: the name or password is invalid.
        """
        user = await self._new_user(name, password, tuple(memberships), email=email)
        return await self._store.accounts.add_user(user, by=by)

    async def keep_provided_user(
        self, user_id: str, name: str, *, email: str, memberships: Collection[Membership], by: Actor
    ) -> UserAccount:
        """Add or update a user of a sign-in provider, with exactly the roles given there.

        Args:
            user_id: derived from the provider's identity.
            name: the name of a new user; existing users keep theirs.

        Raises:
            IdentityConflict: another user has the name.
            IdentityNotFound: a role names an unknown tenant.
            InvalidOption: the name is invalid.
        """
        account = await self._store.accounts.account(user_id)
        if account is None:
            check_name(name, what="user")
            user = NewUser(id=user_id, name=name, email=email, memberships=tuple(memberships))
            return UserAccount(user=await self._store.accounts.add_user(user, by=by), memberships=user.memberships)
        wanted = {one.tenant: one for one in memberships}
        for one in account.memberships:
            if one.tenant not in wanted:
                await self._store.accounts.remove_membership(user_id, one.tenant, by=by)
        for one in wanted.values():
            if one not in account.memberships:
                await self._store.accounts.set_membership(user_id, one, by=by)
        self._forget()
        return UserAccount(user=account.user, memberships=tuple(memberships))

    async def set_password(
        self,
        user_id: str,
        password: str,
        *,
        by: Actor,
        keep_session: str = "",
        keeps_tokens: bool = False,
        change: UserChange = _NO_CHANGE,
    ) -> PasswordSet:
        """Set a user's password; their sessions end and their tokens are revoked.

        Args:
            keep_session: the id of a session to keep.
            keeps_tokens: keep their tokens valid.
            change: further changes in the same transaction; its version is checked.

        Raises:
            IdentityConflict: see `AccountStore.change_user`; the password is unchanged.
            IdentityNotFound: the user does not exist.
            InvalidOption: the password is invalid.
        """
        account = await self._store.accounts.account(user_id)
        if account is None:
            raise IdentityNotFound(f"user {user_id} not found")
        self._hasher.check(password, user=account.user.name)
        kept = await self._hasher.hash(password)
        wanted = msgspec.structs.replace(
            change, password_hash=kept, keep_session=keep_session, revokes_tokens=not keeps_tokens
        )
        credentials = self._store.credentials
        tokens, sessions = await credentials.tokens(user_id), await credentials.sessions(user_id)
        await self.change_user(user_id, wanted, by=by)
        left = len(await credentials.tokens(user_id))
        return PasswordSet(sum(each.id != keep_session for each in sessions), len(tokens) - left, left)

    async def change_own_password(
        self, identity: Identity, before: str, after: str, *, by: Actor, keeps_tokens: bool = True
    ) -> PasswordSet:
        """Do what `set_password` does, for a user who knows the current one; their current session stays.

        Raises:
            NotAuthenticated, LoginThrottled: see `Access.check_password`.
        """
        assert self._access is not None
        await self._access.check_password(identity, before, address=by.address)
        return await self.set_password(
            identity.user_id, after, by=by, keep_session=by.credential, keeps_tokens=keeps_tokens
        )

    async def change_user(self, user_id: str, change: UserChange, *, by: Actor) -> User:
        """See `AccountStore.change_user`."""
        if change.name is not msgspec.UNSET:
            check_name(change.name, what="user")
        if change.email is not msgspec.UNSET:
            check_text(change.email, what="email")
        changed = await self._store.accounts.change_user(user_id, change, by=by)
        self._forget()
        return changed

    async def erase_user(self, user_id: str, *, by: Actor) -> None:
        """See `AccountStore.erase_user`."""
        await self._store.accounts.erase_user(user_id, by=by)
        self._forget()

    async def set_role(
        self,
        user_id: str,
        tenant: str,
        role: Role,
        *,
        by: Actor,
        tasks: Collection[str] = ("*",),
        groups: Collection[str] = (),
    ) -> None:
        """Give a user a role on a tenant, or on the instance (`EVERYWHERE`), and their groups there.

        Raises:
            IdentityNotFound: the user or tenant does not exist.
            InvalidOption: a task pattern or a group is invalid.
        """
        membership = _check_membership(Membership(tenant, role, tuple(tasks), tuple(groups)))
        await self._store.accounts.set_membership(user_id, membership, by=by)
        self._forget()

    async def remove_role(self, user_id: str, tenant: str, *, by: Actor) -> None:
        """See `AccountStore.remove_membership`."""
        await self._store.accounts.remove_membership(user_id, tenant, by=by)
        self._forget()

    async def set_member(
        self,
        user: str,
        tenant: str,
        role: Role,
        *,
        scope: Scope,
        by: Actor,
        tasks: Collection[str] = ("*",),
        groups: Collection[str] = (),
    ) -> None:
        """Give a user a role on the tenant, and groups. Users without a role in the scope are reported as not found.

        Raises:
            IdentityConflict: see `AccountStore.set_membership`.
            IdentityNotFound: no user of that name has a role in the scope, or the tenant does not exist.
            InvalidOption: a task pattern or a group is invalid.
        """
        found = await self._store.accounts.account_named(user)
        if found is None or (
            scope.tenants is not None and not any(scope.has(one.tenant) for one in found[0].memberships)
        ):
            raise IdentityNotFound(
                f"no user {user[:80]!r} has a role in your tenants: an instance admin must give them the first one"
            )
        await self.set_role(found[0].user.id, tenant, role, by=by, tasks=tasks, groups=groups)

    async def remove_member(self, user: str, tenant: str, *, by: Actor) -> None:
        """Remove a user's role on the tenant. Users without a role there are reported as not found.

        Raises:
            IdentityConflict: see `AccountStore.remove_membership`.
            IdentityNotFound: no user of that name has a role there.
        """
        found = await self._store.accounts.account_named(user)
        if found is None or all(one.tenant != tenant for one in found[0].memberships):
            raise IdentityNotFound(f"no user {user[:80]!r} has a role in {tenant!r}")
        await self.remove_role(found[0].user.id, tenant, by=by)

    async def add_tenant(self, name: str, *, by: Actor, description: str = "") -> Tenant:
        """See `AccountStore.add_tenant`.

        Raises:
            InvalidOption: the name is invalid.
        """
        check_name(name, what="tenant")
        check_text(description, what="description")
        return await self._store.accounts.add_tenant(Tenant(name=name, description=description), by=by)

    async def change_tenant(
        self, name: str, *, by: Actor, description: str | None = None, is_disabled: bool | None = None
    ) -> Tenant:
        """See `AccountStore.change_tenant`.

        Raises:
            InvalidOption: the description is invalid.
        """
        check_text(description or "", what="description")
        changed = await self._store.accounts.change_tenant(
            name, by=by, description=description, is_disabled=is_disabled
        )
        self._forget()
        return changed

    async def remove_tenant(self, name: str, *, by: Actor) -> None:
        """See `AccountStore.remove_tenant`."""
        await self._store.accounts.remove_tenant(name, by=by)
        self._forget()

    async def add_token(
        self,
        user_id: str,
        name: str,
        *,
        by: Actor,
        scopes: frozenset[Permission] | None = None,
        tenants: frozenset[str] | None = None,
        tasks: Collection[str] = ("*",),
        expires: int | None = None,
    ) -> NewSecret:
        """Create a token. Its secret is only in the returned value.

        Args:
            expires: ms since the epoch; None for the maximum token age, if there is one.

        Raises:
            IdentityNotFound: the user does not exist.
            IdentityConflict: the user has a token of that name.
            LimitReached: the user has the maximum number of tokens.
            InvalidOption: the name or a task pattern is invalid.
        """
        secret = token_key(secrets.token_bytes(32))
        if expires is None and self._access is not None:
            expires = self._access.end_of_token()
        new = NewApiToken(
            id=str(uuid.uuid4()),
            user_id=user_id,
            name=check_name(name, what="token"),
            digest=secret.digest,
            scopes=scopes,
            tenants=tenants,
            tasks=tuple(check_pattern(pattern) for pattern in tasks),
            expires=expires,
        )
        return NewSecret(await self._store.credentials.add_token(new, by=by), secret.text)

    async def revoke_token(self, token_id: str, *, by: Actor, user_id: str | None = None) -> None:
        """See `CredentialStore.revoke_token`."""
        await self._store.credentials.revoke_token(token_id, user_id=user_id, by=by)
        self._forget()

    async def end_session(self, session_id: str, *, by: Actor, user_id: str | None = None) -> None:
        """See `CredentialStore.end_session`."""
        await self._store.credentials.end_session(session_id, user_id=user_id, by=by)
        self._forget()

    def _forget(self) -> None:
        if self._access is not None:
            self._access.forget()

    async def _new_user(
        self, name: str, password: str | None, memberships: tuple[Membership, ...], *, email: str = ""
    ) -> NewUser:
        check_name(name, what="user")
        check_text(email, what="email")
        for membership in memberships:
            _check_membership(membership)
        kept = ""
        if password is not None:
            self._hasher.check(password, user=name)
            kept = await self._hasher.hash(password)
        return NewUser(id=str(uuid.uuid4()), name=name, email=email, password_hash=kept, memberships=memberships)


def _check_membership(membership: Membership) -> Membership:
    for pattern in membership.tasks:
        check_pattern(pattern)
    for group in membership.groups:
        check_group(group)
    return membership
