"""`taskmq admin role`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.administration.store import user_id_of
from taskmq.cli.output import confirmed, note, print_rows
from taskmq.cli.server_link import Api, ask, show_rows
from taskmq.errors import InvalidOption
from taskmq.model.identity import EVERYWHERE, RULES, Role

if TYPE_CHECKING:
    from taskmq.api.accounts import MemberView

__all__ = ["app"]

app = App(
    name="role", help="Roles of users on tenants: add, list, remove, permissions.", result_action="return_value"
)

_COLUMNS: Final = ("tenant", "user", "role", "tasks")
_RULES: Final = ("permission", "on", "role", "about")
_Tenant = Annotated[str | None, Parameter(help="The tenant.")]
_Instance = Annotated[bool, Parameter(negative="", help="The whole instance, and with it all tenants.")]


@app.command
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
    where = _place_of(tenant, instance)

    async def run(api: Api) -> None:
        await api.users.set_role(await user_id_of(api, user), where, role, tasks=task or ["*"])

    ask(run)
    note(f"user {user} is {role} of {_place_name(where)}")


@app.command(name="list")
def list_roles(tenant: str | None = None, /) -> None:
    """List users and their roles, on one tenant or on all; `*` is the whole instance.

    Parameters
    ----------
    tenant
        The tenant; default: all, and the instance.
    """

    def row(member: "MemberView") -> dict[str, Any]:
        return {"tenant": member.tenant, "user": member.user, "role": member.role, "tasks": ",".join(member.tasks)}

    show_rows(_COLUMNS, ask(lambda api: api.tenants.members(), tenant=tenant), row)


@app.command
@confirmed("Take the role of user {user} away?")
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
    where = _place_of(tenant, instance)

    async def run(api: Api) -> None:
        await api.users.remove_role(await user_id_of(api, user), where)

    ask(run)
    note(f"user {user} has no role on {_place_name(where)} any more")


@app.command
def permissions() -> None:
    """Show what each permission lets one do, and which role it needs on a tenant or on the instance."""
    rows = [
        {"permission": permission.value, "on": rule.place.value, "role": rule.role, "about": rule.about}
        for permission, rule in RULES.items()
    ]
    print_rows(_RULES, rows)


def _place_of(tenant: str | None, instance: bool) -> str:  # noqa: FBT001 - as the command line has it
    if (tenant is None) is not instance:
        raise InvalidOption("on what? Say either --tenant NAME or --instance")
    return EVERYWHERE if tenant is None else tenant


def _place_name(where: str) -> str:
    return "the instance" if where == EVERYWHERE else f"tenant {where}"
