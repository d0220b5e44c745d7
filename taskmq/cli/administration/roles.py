"""`taskmq admin role`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import me
from taskmq.cli.administration.store import administer, at_store, user_named
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirmed, note, print_rows
from taskmq.cli.server_link import over_http
from taskmq.contracts.identity import User
from taskmq.errors import InvalidOption
from taskmq.model.identity import EVERYTHING_OF_ALL, EVERYWHERE, RULES, Membership, Role, Scope

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.contracts.identity import IdentityStore

__all__ = ["ROLE_COLUMNS", "app", "place_name", "place_of"]

app = App(
    name="role", help="Roles of users on tenants: add, list, remove, permissions.", result_action="return_value"
)

ROLE_COLUMNS: Final = ("tenant", "user", "role", "tasks")
_RULES: Final = ("permission", "on", "role", "about")
_Tenant = Annotated[str | None, Parameter(help="The tenant.")]
_Instance = Annotated[bool, Parameter(negative="", help="The whole instance, and with it all tenants.")]


@app.command
@over_http("tenants:add_role")
def add(
    user: str,
    role: Role,
    /,
    *,
    tenant: _Tenant = None,
    instance: _Instance = False,
    task: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> None:
    """Give a user a role on a tenant or on the instance, in place of the one that they have there.

    Each role includes those before it: viewer, submitter, operator, admin.

    Parameters
    ----------
    user
        The user.
    role
        The role.
    tenant
        The tenant.
    instance
        The whole instance, and with it all tenants.
    task
        Pattern of the tasks that they may call there, such as billing.*; several times for more. Default: all.
    """
    where = place_of(tenant, instance)

    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.set_role((await user_named(store, user)).id, where, role, tasks=task or ("*",), by=me())

    administer(run)
    note(f"user {user} is {role} of {place_name(where)}")


@app.command(name="list")
@over_http("tenants:list_roles")
def list_roles(tenant: str | None = None, /) -> None:
    """List users and their roles, on one tenant or on all; `*` is the whole instance.

    Parameters
    ----------
    tenant
        The tenant; default: all, and the instance.
    """
    scope = EVERYTHING_OF_ALL if tenant is None else Scope(frozenset({tenant}))

    async def run(store: "IdentityStore") -> list[tuple[User, Membership]]:
        return await store.accounts.members(scope)

    print_rows(ROLE_COLUMNS, [_described(user, membership) for user, membership in at_store(run)])


@app.command
@confirmed("Take the role of user {user} away?")
@over_http("tenants:remove_role")
def remove(user: str, /, *, tenant: _Tenant = None, instance: _Instance = False) -> None:
    """Take a user's role away.

    Parameters
    ----------
    user
        The user.
    tenant
        The tenant.
    instance
        The whole instance.
    """
    where = place_of(tenant, instance)

    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.remove_role((await user_named(store, user)).id, where, by=me())

    administer(run)
    note(f"user {user} has no role on {place_name(where)} any more")


@app.command
def permissions() -> None:
    """Show what each permission lets one do, and which role it needs on a tenant or on the instance."""
    rows = [
        {"permission": permission.value, "on": rule.place.value, "role": rule.role, "about": rule.about}
        for permission, rule in RULES.items()
    ]
    print_rows(_RULES, rows)


def place_of(tenant: str | None, instance: bool) -> str:  # noqa: FBT001 - as the command line has it
    if (tenant is None) is not instance:
        raise InvalidOption("on what? Say either --tenant NAME or --instance")
    return EVERYWHERE if tenant is None else tenant


def place_name(where: str) -> str:
    return "the instance" if where == EVERYWHERE else f"tenant {where}"


def _described(user: User, membership: Membership) -> dict[str, Any]:
    tasks: Any = list(membership.tasks)
    if current_globals().output == "table":
        tasks = ",".join(tasks)
    return {"tenant": membership.tenant, "user": user.name, "role": membership.role.value, "tasks": tasks}
