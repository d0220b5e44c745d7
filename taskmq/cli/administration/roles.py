"""`taskmq admin role`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from taskmq.cli.administration.store import user_id_of
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note, print_rows
from taskmq.cli.server_link import Api, ask, show_rows
from taskmq.errors import InvalidOption
from taskmq.model.identity import EVERYWHERE, RULES, Role

if TYPE_CHECKING:
    from taskmq.api.accounts import MemberView

app = Noun(name="role", help="Manage the roles of users on tenants: add, list, remove, permissions.")

_COLUMNS: Final = ("tenant", "user", "role", "tasks", "groups")
_RULES: Final = ("permission", "on", "role", "about")
_Tenant = Annotated[str | None, Parameter(help="The tenant.")]
_Instance = Annotated[bool, Parameter(negative="", help="The whole instance, including all tenants.")]


@app.command
def add(
    user: str,
    role: Role,
    /,
    *,
    tenant: _Tenant = None,
    instance: _Instance = False,
    task: Annotated[list[str] | None, Parameter(negative="")] = None,
    group: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> None:
    """Grant a user a role on a tenant or on the instance, replacing the current one there.

    Each role includes those before it: viewer, submitter, operator, admin.

    Args:
        user: The user.
        role: The role.
        tenant: The tenant.
        instance: The whole instance, including all tenants.
        task: Pattern of the tasks that the user may call there, such as billing.*; may be repeated. Default: all.
        group: Group of the user there; a wait whose roles list group:NAME takes its answers. May be repeated.
    """
    where = _subject_of(tenant, instance)

    async def run(api: Api) -> None:
        await api.users.set_role(await user_id_of(api, user), where, role, tasks=task or ["*"], groups=group or [])

    ask(run)
    note(f"user {user} is now {role} of {_subject_text(where)}")


@app.command(name="list")
def list_roles(tenant: str | None = None, /) -> None:
    """List users and their roles on one tenant or on all; `*` is the whole instance.

    Args:
        tenant: The tenant. Default: all tenants and the instance.
    """

    def row(member: "MemberView") -> dict[str, Any]:
        return {
            "tenant": member.tenant,
            "user": member.user,
            "role": member.role,
            "tasks": ",".join(member.tasks),
            "groups": ",".join(member.groups),
        }

    show_rows(_COLUMNS, ask(lambda api: api.tenants.members(), tenant=tenant), row)


@app.command
@ask_first("Remove the role of user {user}?")
def remove(user: str, /, *, tenant: _Tenant = None, instance: _Instance = False) -> None:
    """Remove a user's role.

    Args:
        user: The user.
        tenant: The tenant.
        instance: The whole instance.
    """
    where = _subject_of(tenant, instance)

    async def run(api: Api) -> None:
        await api.users.remove_role(await user_id_of(api, user), where)

    ask(run)
    note(f"removed the role of user {user} on {_subject_text(where)}")


@app.command
def permissions() -> None:
    """List the permissions, what each allows, and which role it needs on a tenant or on the instance."""
    rows = [
        {"permission": permission.value, "on": rule.level.value, "role": rule.role, "about": rule.about}
        for permission, rule in RULES.items()
    ]
    print_rows(_RULES, rows)


def _subject_of(tenant: str | None, instance: bool) -> str:  # noqa: FBT001 - as the command line has it
    if (tenant is None) is not instance:
        raise InvalidOption("pass either --tenant NAME or --instance")
    return EVERYWHERE if tenant is None else tenant


def _subject_text(where: str) -> str:
    return "the instance" if where == EVERYWHERE else f"tenant {where}"
