"""Tenants, users, and their roles."""

from typing import Protocol

from taskmq.contracts.identity.records import Actor, NewUser, Tenant, User, UserAccount, UserChange
from taskmq.model.identity import Membership, Scope

__all__ = ["AccountStore"]


class AccountStore(Protocol):
    """Tenants, users and memberships. Names of users are unique, whatever their case.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def add_tenant(self, tenant: Tenant, *, by: Actor) -> Tenant:
        """Add a tenant; jobs that name it already are its own.

        Raises:
            IdentityConflict: there is one of that name.
        """
        ...

    async def tenants(self, scope: Scope) -> list[Tenant]:
        """All tenants of the scope, by name."""
        ...

    async def change_tenant(
        self, name: str, *, by: Actor, description: str | None = None, is_disabled: bool | None = None
    ) -> Tenant:
        """Change a tenant; what is None stays.

        Raises:
            IdentityNotFound: there is none of that name.
        """
        ...

    async def remove_tenant(self, name: str, *, by: Actor) -> None:
        """Remove a tenant and its roles; its jobs stay, for the instance's roles only.

        Raises:
            IdentityNotFound: there is none of that name.
        """
        ...

    async def add_user(self, user: NewUser, *, by: Actor, is_first: bool = False) -> User:
        """Add a user with their roles.

        Args:
            is_first: only where the instance has no admin yet; of several calls at a time one succeeds.

        Raises:
            IdentityConflict: the name is taken; or there is an admin already, and `is_first`.
            IdentityNotFound: a role is on a tenant that there is not.
        """
        ...

    async def account(self, user_id: str) -> UserAccount | None:
        """A user by their id, with their roles."""
        ...

    async def account_named(self, name: str) -> tuple[UserAccount, str] | None:
        """A user by their name, whatever its case, with their roles, and the hash of their password."""
        ...

    async def users(self, *, after: str = "", limit: int = 50) -> list[User]:
        """Up to `limit` users by name, those behind the name `after`."""
        ...

    async def change_user(self, user_id: str, change: UserChange, *, by: Actor) -> User:
        """Change a user, and write it into the audit in the same transaction.

        Raises:
            IdentityNotFound: there is none of that id.
            IdentityConflict: the name is taken, or the version is another.
        """
        ...

    async def rehash_password(self, user_id: str, *, before: str, after: str) -> None:
        """Keep the same password with another hash, unless it was changed meanwhile: no entry, no session ends."""
        ...

    async def erase_user(self, user_id: str, *, by: Actor) -> None:
        """Remove a user for good, with roles, sessions and tokens, and what the audit says about the person.

        Hashes of the audit stay; so does what they did, under their id.

        Raises:
            IdentityNotFound: there is none of that id.
            IdentityConflict: they are the instance's last admin.
        """
        ...

    async def set_membership(self, user_id: str, membership: Membership, *, by: Actor) -> None:
        """Give a user a role, in place of the one that they have on that tenant.

        Raises:
            IdentityNotFound: there is no such user, or no such tenant.
            IdentityConflict: the instance's last admin would be none any more.
        """
        ...

    async def remove_membership(self, user_id: str, tenant: str, *, by: Actor) -> None:
        """Take a user's role away.

        Raises:
            IdentityNotFound: they have none there.
            IdentityConflict: they are the instance's last admin.
        """
        ...

    async def members(self, scope: Scope) -> list[tuple[User, Membership]]:
        """Who has which role on the tenants of the scope, by tenant and name; of everything: on the instance, too."""
        ...
