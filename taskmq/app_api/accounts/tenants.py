"""Tenants and their members."""

from collections.abc import Sequence

from taskmq.api.accounts import MemberView, TenantView
from taskmq.app_api.caller import AppAccounts
from taskmq.app_api.views import instant_text, render_all
from taskmq.contracts.identity import Tenant
from taskmq.model.identity import EVERYTHING_OF_ALL, Scope


class AppTenants(AppAccounts):
    """Tenants by name. Methods raise `IdentityNotFound` and `IdentityConflict`."""

    async def add(self, name: str, *, description: str = "") -> TenantView:
        made = await self._administration().add_tenant(name, by=self._caller.actor(), description=description)
        return tenant_view(made)

    async def change(
        self, name: str, *, description: str | None = None, is_disabled: bool | None = None
    ) -> TenantView:
        after = await self._administration().change_tenant(
            name, by=self._caller.actor(), description=description, is_disabled=is_disabled
        )
        return tenant_view(after)

    async def remove(self, name: str) -> None:
        """Remove a tenant and its roles. Its jobs remain, visible only to instance roles."""
        await self._administration().remove_tenant(name, by=self._caller.actor())

    async def members(self) -> Sequence[MemberView]:
        """List the members of the caller's tenant; for an instance role, of all tenants."""
        tenant = self._caller.tenant
        found = await self._accounts.members(Scope(None if tenant is None else frozenset({tenant})))
        return [
            MemberView(
                user_id=user.id,
                user=user.name,
                tenant=role.tenant,
                role=role.role,
                tasks=list(role.tasks),
                groups=list(role.groups),
            )
            for user, role in found
        ]

    async def list(self) -> Sequence[TenantView]:
        """List all tenants, ordered by name."""
        return render_all(tenant_view, await self._accounts.tenants(EVERYTHING_OF_ALL))


def tenant_view(tenant: Tenant) -> TenantView:
    """Build the API's view of a tenant."""
    return TenantView(
        name=tenant.name,
        description=tenant.description,
        created=instant_text(tenant.created),
        disabled=instant_text(tenant.disabled),
    )
