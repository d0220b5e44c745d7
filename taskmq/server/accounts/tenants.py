"""`/tenants`: tenants and their members."""

from typing import Any, Final

from litestar import Request
from litestar.params import FromPath, JSONBody

from taskmq.api.accounts import MemberList, RoleBody, TenantBody, TenantChangeBody, TenantList, TenantView
from taskmq.app_api.accounts.tenants import tenant_view
from taskmq.app_api.views import render_all
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission, may_give, may_take, scope_for
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven
from taskmq.server.problems import Problem
from taskmq.server.sign_in import accounts_of

TENANT_HANDLERS: Final = Handlers("tenants")


@TENANT_HANDLERS.handle("GET /tenants", "listTenants", Permission.TENANTS_READ, "List tenants")
async def list_tenants(request: Request[Any, Any, Any], caller: CallerGiven) -> TenantList:
    """Return the tenants in which the caller has a role; for an instance role, all of them."""
    scope = scope_for(caller.identity, Permission.JOBS_READ)
    found = await accounts_of(request.app.state).store.accounts.tenants(scope)
    return TenantList(render_all(tenant_view, found))


@TENANT_HANDLERS.handle("POST /tenants", "addTenant", Permission.TENANTS_CHANGE, "Add a tenant", status_code=201)
async def add_tenant(data: JSONBody[TenantBody], api: ApiGiven) -> TenantView:
    """Add a tenant. Existing jobs with this tenant's name belong to it."""
    return await api.tenants.add(data.name, description=data.description)


@TENANT_HANDLERS.handle(
    "PATCH /tenants/{name}", "changeTenant", Permission.TENANTS_CHANGE, "Change a tenant", repeats=True
)
async def change_tenant(name: FromPath[str], data: JSONBody[TenantChangeBody], api: ApiGiven) -> TenantView:
    """Change a tenant's description, or disable it."""
    return await api.tenants.change(name, description=data.description, is_disabled=data.is_disabled)


@TENANT_HANDLERS.handle("DELETE /tenants/{name}", "removeTenant", Permission.TENANTS_CHANGE, "Remove a tenant")
async def remove_tenant(name: FromPath[str], api: ApiGiven) -> dict[str, str]:
    """Remove a tenant and its roles. Its jobs remain, visible only to instance roles."""
    await api.tenants.remove(name)
    return {"status": "removed"}


@TENANT_HANDLERS.handle("GET /members", "listMembers", Permission.MEMBERS_READ, "List members")
async def list_members(api: ApiGiven) -> MemberList:
    """Return the members and roles of a tenant; for an instance role, of all tenants."""
    return MemberList(list(await api.tenants.members()))


@TENANT_HANDLERS.handle(
    "PUT /members/{user}",
    "setMember",
    Permission.MEMBERS_CHANGE,
    "Give a user a role in a tenant",
    repeats=True,
)
async def set_member(
    user: FromPath[str], data: JSONBody[RoleBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Give a user a role in the tenant, replacing their current one.

    A tenant's admin can only name users with a role in one of the admin's tenants. Other users are reported as not
    found; an instance admin must give them their first role. Callers cannot give or replace roles with task patterns
    beyond their own.
    """
    tenant = _named_tenant(caller)
    if not may_give(caller.identity, tenant, data.tasks):
        raise NotPermitted("you can only grant task patterns that you have yourself")
    await _check_member(request, caller, user, tenant)
    await accounts_of(request.app.state).administration.set_member(
        user,
        tenant,
        data.role,
        scope=scope_for(caller.identity, Permission.MEMBERS_CHANGE),
        by=caller.actor(),
        tasks=data.tasks,
        groups=data.groups,
    )
    return {"status": "updated"}


@TENANT_HANDLERS.handle(
    "DELETE /members/{user}", "removeMember", Permission.MEMBERS_CHANGE, "Remove a user's role in a tenant"
)
async def remove_member(user: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven) -> dict[str, str]:
    """Remove a user's role in the tenant. The user's task patterns must not exceed the caller's."""
    tenant = _named_tenant(caller)
    await _check_member(request, caller, user, tenant)
    await accounts_of(request.app.state).administration.remove_member(user, tenant, by=caller.actor())
    return {"status": "removed"}


async def _check_member(request: Request[Any, Any, Any], caller: Caller, user: str, tenant: str) -> None:
    """Refuse to change or remove a member who may call more tasks than the caller."""
    found = await accounts_of(request.app.state).store.accounts.account_named(user)
    present = [] if found is None else [one for one in found[0].memberships if one.tenant == tenant]
    if not may_take(caller.identity, present):
        raise NotPermitted(f"{user[:80]!r} may call tasks of the tenant that you may not: ask an admin who may")


def _named_tenant(caller: Caller) -> str:
    if not caller.tenant:
        raise Problem(400, "tenant_missing", "select a tenant with ?tenant=; use /users for instance roles")
    return caller.tenant
