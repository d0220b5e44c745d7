"""`taskmq admin role` through a server."""

from typing import Any

from taskmq.api.accounts import MemberView
from taskmq.cli.administration.roles import ROLE_COLUMNS, place_name, place_of
from taskmq.cli.exits import OK
from taskmq.cli.output import note
from taskmq.cli.remote.accounts import user_id_of
from taskmq.cli.server_link import show_rows
from taskmq.http import Client
from taskmq.model.identity import Role

__all__ = [
    "add_role",
    "list_roles",
    "remove_role",
]


def add_role(
    client: Client, *, user: str, role: Role, tenant: str | None, instance: bool, task: list[str] | None
) -> int:
    where = place_of(tenant, instance)
    client.users.set_role(user_id_of(client, user), where, role, tasks=task or ["*"])
    note(f"user {user} is {role} of {place_name(where)}")
    return OK


def list_roles(client: Client, *, tenant: str | None) -> int:
    asked = client if tenant is None else client.for_tenant(tenant)
    show_rows(ROLE_COLUMNS, asked.tenants.members(), _member_row)
    return OK


def remove_role(client: Client, *, user: str, tenant: str | None, instance: bool) -> int:
    where = place_of(tenant, instance)
    client.users.remove_role(user_id_of(client, user), where)
    note(f"user {user} has no role on {place_name(where)} any more")
    return OK


def _member_row(member: MemberView) -> dict[str, Any]:
    return {"tenant": member.tenant, "user": member.user, "role": member.role, "tasks": ",".join(member.tasks)}
