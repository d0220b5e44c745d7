"""Tenants, and who has which role there."""

from collections.abc import Sequence

from taskmq.api.accounts import MemberView, TenantView
from taskmq.app_api.caller import AppAccounts
from taskmq.app_api.views import instant_text, rendered
from taskmq.contracts.identity import Tenant
from taskmq.model.identity import EVERYTHING_OF_ALL, Scope

__all__ = ["AppTenants", "tenant_view"]


class AppTenants(AppAccounts):
    """Tenants, by their names. Methods raise `IdentityNotFound` and `IdentityConflict`."""

    async def add(self, name: str, *, description: str = "") -> TenantView:
        """Add a tenant; jobs that name it already are its own."""
        made = await self._administration().add_tenant(name, by=self._caller.actor(), description=description)
        return tenant_view(made)

    async def change(
        self, name: str, *, description: str | None = None, is_disabled: bool | None = None
    ) -> TenantView:
        """Describe a tenant otherwise, or disable it."""
        after = await self._administration().change_tenant(
            name, by=self._caller.actor(), description=description, is_disabled=is_disabled
        )
        return tenant_view(after)

    async def remove(self, name: str) -> None:
        """Remove a tenant and its roles; its jobs stay, for roles on the instance only."""
        await self._administration().remove_tenant(name, by=self._caller.actor())

    async def members(self) -> Sequence[MemberView]:
        """List the roles of users on the caller's tenant, or everywhere if the caller's role is on the instance."""
        tenant = self._caller.tenant
        found = await self._accounts.members(Scope(None if tenant is None else frozenset({tenant})))
        return [
            MemberView(user_id=user.id, user=user.name, tenant=role.tenant, role=role.role, tasks=list(role.tasks))
            for user, role in found
        ]

    async def list(self) -> Sequence[TenantView]:
        """List the tenants that were added."""
        return rendered(tenant_view, await self._accounts.tenants(EVERYTHING_OF_ALL))


def tenant_view(tenant: Tenant) -> TenantView:
    """A tenant as the API shows it."""
    return TenantView(
        name=tenant.name,
        description=tenant.description,
        created=instant_text(tenant.created),
        disabled=instant_text(tenant.disabled),
    )
