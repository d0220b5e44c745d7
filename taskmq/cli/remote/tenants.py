"""`taskmq admin tenant`, `taskmq admin role` and `taskmq audit` through a server."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from taskmq.api.accounts import AuditEntryView, MemberView, TenantView
from taskmq.cli.administration.audit import AUDIT_COLUMNS
from taskmq.cli.administration.roles import ROLE_COLUMNS, place_name, place_of
from taskmq.cli.administration.tenants import TENANT_COLUMNS
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.output import note, write_json
from taskmq.cli.remote.accounts import user_id_of
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.http import Client
from taskmq.model.identity import Role
from taskmq.operations.audit import chain_head

__all__ = [
    "add",
    "add_role",
    "disable",
    "enable",
    "export_chain",
    "list_entries",
    "list_roles",
    "list_tenants",
    "remove",
    "remove_role",
    "verify_chain",
]


def add(client: Client, *, name: str, description: str) -> int:
    made = client.tenants.add(name, description=description)
    show_record(made, lambda: _row(made))
    return OK


def list_tenants(client: Client) -> int:
    show_rows(TENANT_COLUMNS, client.tenants.list(), _row)
    return OK


def disable(client: Client, *, name: str) -> int:
    client.tenants.change(name, is_disabled=True)
    note(f"tenant {name} is disabled; `taskmq admin tenant enable {name}` undoes it")
    return OK


def enable(client: Client, *, name: str) -> int:
    client.tenants.change(name, is_disabled=False)
    note(f"tenant {name} is enabled")
    return OK


def remove(client: Client, *, name: str) -> int:
    client.tenants.remove(name)
    note(f"tenant {name} is removed")
    return OK


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


def list_entries(
    client: Client,
    *,
    action: str,
    user: str | None,
    kind: str,
    subject: str,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> int:
    asked = client if tenant is None else client.for_tenant(tenant)
    found = asked.audit.list(
        action=action,
        user_id=None if user is None else user_id_of(client, user),
        kind=kind,
        subject=subject,
        since=_zoned(since),
        until=_zoned(until),
    )
    show_rows(AUDIT_COLUMNS, list(islice(found, limit)), _entry_row)
    return OK


def verify_chain(client: Client, *, head: str | None) -> int:
    if head is not None:
        chain_head(head)
    report = client.audit.verify(head=head or "")
    facts = {name: value for name, value in msgspec.to_builtins(report).items() if name != "fault"}
    show_record(report, lambda: facts)
    if not report.is_whole:
        note(f"the audit is not whole: {report.fault}")
        return FAILED
    return OK


def export_chain(client: Client) -> int:
    after: int | None = 0
    while after is not None:
        page = client.audit.chain(after=after)
        for entry in page.items:
            write_json(entry)
        after = page.next
    return OK


def _zoned(given: datetime | None) -> datetime | None:
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def _row(tenant: TenantView) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "description": tenant.description,
        "created": text_of_instant(tenant.created),
        "disabled": text_of_instant(tenant.disabled),
    }


def _member_row(member: MemberView) -> dict[str, Any]:
    return {"tenant": member.tenant, "user": member.user, "role": member.role, "tasks": ",".join(member.tasks)}


def _entry_row(entry: AuditEntryView) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(entry)
    facts["at"] = text_of_instant(entry.at)
    facts["user"] = entry.user or entry.user_id
    for name in ("before", "after"):
        facts[name] = "" if facts[name] is None else msgspec.json.encode(facts[name]).decode()
    return facts
