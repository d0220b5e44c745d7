"""Tenants, users, and their roles."""

from typing import Protocol

from taskmq.contracts.identity.records import Actor, NewUser, Tenant, User, UserAccount, UserChange
from taskmq.model.identity import Membership, Scope


class AccountStore(Protocol):
    """Tenants, users and memberships. Names of users are unique, ignoring case.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def add_tenant(self, tenant: Tenant, *, by: Actor) -> Tenant:
        """Add a tenant; existing jobs that name it belong to it.

        Raises:
            IdentityConflict: a tenant has that name.
        """
        ...

    async def tenants(self, scope: Scope) -> list[Tenant]:
        """Return all tenants of the scope, by name."""
        ...

    async def change_tenant(
        self, name: str, *, by: Actor, description: str | None = None, is_disabled: bool | None = None
    ) -> Tenant:
        """Change a tenant; None leaves a value unchanged.

        Raises:
            IdentityNotFound: no tenant has that name.
        """
        ...

    async def remove_tenant(self, name: str, *, by: Actor) -> None:
        """Remove a tenant and its roles; its jobs stay, for the instance's roles only.

        Raises:
            IdentityNotFound: no tenant has that name.
        """
        ...

    async def add_user(self, user: NewUser, *, by: Actor, is_first: bool = False) -> User:
        """Add a user with their roles.

        Args:
            is_first: succeed only if the instance has no admin yet; of concurrent calls one succeeds.

        Raises:
            IdentityConflict: the name is taken; or there is an admin already, with `is_first`.
            IdentityNotFound: a role is on a tenant that does not exist.
        """
        ...

    async def account(self, user_id: str) -> UserAccount | None:
        """Return a user by id, with their roles."""
        ...

    async def account_named(self, name: str) -> tuple[UserAccount, str] | None:
        """Return a user by name, ignoring case, with their roles and the hash of their password."""
        ...

    async def users(self, *, after: str = "", limit: int = 50) -> list[User]:
        """Return up to `limit` users by name, after the name `after`."""
        ...

    async def change_user(self, user_id: str, change: UserChange, *, by: Actor) -> User:
        """Change a user, with an audit entry in the same transaction.

        Raises:
            IdentityNotFound: no user has that id.
            IdentityConflict: the name is taken, or the version differs.
        """
        ...

    async def rehash_password(self, user_id: str, *, before: str, after: str) -> None:
        """Replace the hash of an unchanged password; does nothing if it was changed.

        No audit entry, and no session ends.
        """
        ...

    async def erase_user(self, user_id: str, *, by: Actor) -> None:
        """Remove a user for good, with roles, sessions and tokens, and the personal parts of audit entries.

        Hashes of the audit stay, and so do the user's actions under their id.

        Raises:
            IdentityNotFound: no user has that id.
            IdentityConflict: they are the instance's last admin.
        """
        ...

    async def set_membership(self, user_id: str, membership: Membership, *, by: Actor) -> None:
        """Grant a user a role, instead of the one that they have on that tenant.

        Raises:
            IdentityNotFound: there is no such user, or no such tenant.
            IdentityConflict: the instance would have no admin.
        """
        ...

    async def remove_membership(self, user_id: str, tenant: str, *, by: Actor) -> None:
        """Revoke a user's role.

        Raises:
            IdentityNotFound: they have none there.
            IdentityConflict: they are the instance's last admin.
        """
        ...

    async def members(self, scope: Scope) -> list[tuple[User, Membership]]:
        """Return the members of the scope's tenants with roles, by tenant and name; of all: the instance's, too."""
        ...
