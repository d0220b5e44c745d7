"""`/users`: users and their roles."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.access import PasswordSet
from taskmq.api.accounts import ChangedUserView, RoleBody, UserBody, UserChangeBody, UserList, UserView
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.accounts.users import membership_of, user_view
from taskmq.app_api.views import render_all
from taskmq.contracts.identity import UserAccount, UserChange
from taskmq.errors import IdentityNotFound, NotPermitted
from taskmq.model.identity import Membership, Permission, may_give, may_take
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven, matched_version
from taskmq.server.sign_in import accounts_of

USER_HANDLERS: Final = Handlers("users")


@USER_HANDLERS.handle("GET /users", "listUsers", Permission.USERS_READ, "List users")
async def list_users(
    request: Request[Any, Any, Any],
    after: FromQuery[str] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_PER_PAGE)] = 50,
) -> UserList:
    """Return users, ordered by name."""
    found = await accounts_of(request.app.state).store.accounts.users(after=after, limit=limit)
    return UserList(render_all(user_view, found), found[-1].name if len(found) == limit else None)


@USER_HANDLERS.handle("POST /users", "addUser", Permission.USERS_CHANGE, "Add a user", status_code=201)
async def add_user(
    data: JSONBody[UserBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> Response[UserView]:
    """Add a user with roles."""
    roles = [membership_of(one) for one in data.memberships]
    _check_roles(caller, roles)
    user = await accounts_of(request.app.state).administration.add_user(
        data.name, data.password, by=caller.actor(), email=data.email, memberships=roles
    )
    return Response(user_view(user, tuple(roles)), headers={"ETag": f'"{user.version}"'})


@USER_HANDLERS.handle("GET /users/{user_id}", "getUser", Permission.USERS_READ, "Get a user")
async def get_user(user_id: FromPath[str], request: Request[Any, Any, Any]) -> Response[UserView]:
    """Return a user with their roles."""
    account = await _account(request, user_id)
    return Response(user_view(account.user, account.memberships), headers={"ETag": f'"{account.user.version}"'})


@USER_HANDLERS.handle("PATCH /users/{user_id}", "changeUser", Permission.USERS_CHANGE, "Change a user")
async def change_user(
    user_id: FromPath[str], data: JSONBody[UserChangeBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> Response[ChangedUserView]:
    """Change a user's name, email or password, or disable them.

    A new password ends the user's sessions and revokes their API tokens, unless `keep_tokens` is true.
    """
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    with matched_version(request.headers) as version:
        change = UserChange(version=version, name=data.name, email=data.email, is_disabled=data.is_disabled)
        done = PasswordSet(0, 0, 0)
        if data.password is msgspec.UNSET:
            await administration.change_user(user_id, change, by=caller.actor())
        else:
            done = await administration.set_password(
                user_id, data.password, by=caller.actor(), keeps_tokens=data.keep_tokens, change=change
            )
    account = await _account(request, user_id)
    view = user_view(account.user, account.memberships)
    changed = ChangedUserView(**msgspec.structs.asdict(view), **msgspec.structs.asdict(done))
    return Response(changed, headers={"ETag": f'"{account.user.version}"'})


@USER_HANDLERS.handle("DELETE /users/{user_id}", "eraseUser", Permission.USERS_CHANGE, "Erase a user")
async def erase_user(user_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven) -> dict[str, str]:
    """Remove a user permanently, including personal data in the audit log. The log's hashes remain valid."""
    await check_user(request, caller, user_id)
    await accounts_of(request.app.state).administration.erase_user(user_id, by=caller.actor())
    return {"status": "erased"}


@USER_HANDLERS.handle(
    "PUT /users/{user_id}/roles/{role_tenant}",
    "setRole",
    Permission.USERS_CHANGE,
    "Give a user a role",
    repeats=True,
)
async def set_role(
    user_id: FromPath[str],
    role_tenant: FromPath[str],
    data: JSONBody[RoleBody],
    request: Request[Any, Any, Any],
    caller: CallerGiven,
) -> dict[str, str]:
    """Give a user a role on a tenant, or on the instance (`*`), replacing their current one."""
    administration = accounts_of(request.app.state).administration
    _check_roles(caller, [Membership(role_tenant, data.role, data.tasks)])
    await check_user(request, caller, user_id)
    await administration.set_role(
        user_id, role_tenant, data.role, by=caller.actor(), tasks=data.tasks, groups=data.groups
    )
    return {"status": "updated"}


@USER_HANDLERS.handle(
    "DELETE /users/{user_id}/roles/{role_tenant}", "removeRole", Permission.USERS_CHANGE, "Remove a user's role"
)
async def remove_role(
    user_id: FromPath[str], role_tenant: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Remove a user's role on a tenant."""
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    await administration.remove_role(user_id, role_tenant, by=caller.actor())
    return {"status": "removed"}


async def check_user(request: Request[Any, Any, Any], caller: Caller, user_id: str) -> None:
    """Refuse to change a user who may call more tasks than the caller.

    Raises:
        NotPermitted: the user may call more.
    """
    account = await accounts_of(request.app.state).store.accounts.account(user_id)
    if account is not None and not may_take(caller.identity, account.memberships):
        raise NotPermitted(f"user {account.user.name!r} may call tasks that you may not: ask an admin who may")


def _check_roles(caller: Caller, roles: Sequence[Membership]) -> None:
    if not all(may_give(caller.identity, one.tenant, one.tasks) for one in roles):
        raise NotPermitted("you can only grant task patterns that you have yourself")


async def _account(request: Request[Any, Any, Any], user_id: str) -> UserAccount:
    account = await accounts_of(request.app.state).store.accounts.account(user_id)
    if account is None:
        raise IdentityNotFound(f"user {user_id[:80]!r} not found")
    return account
