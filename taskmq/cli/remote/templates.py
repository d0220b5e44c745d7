"""`taskmq definition` and `taskmq task` through a server."""

from typing import Any

import msgspec

from taskmq.api.definitions import DefinitionView
from taskmq.api.workers import TaskView
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import only_here
from taskmq.cli.jobs.definition import DEFINITION_COLUMNS
from taskmq.cli.jobs.task import TASK_COLUMNS, argument_names
from taskmq.cli.output import confirm, note
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import array_of, label_of, object_of
from taskmq.http import Client

__all__ = ["delete", "list_definitions", "list_tasks", "put", "show", "show_task", "versions"]


def put(
    client: Client,
    *,
    name: str,
    task: str,
    args: str,
    kwargs: str,
    queue: str,
    priority: int | None,
    expires: str | None,
    label: tuple[str, ...],
    description: str,
    owner: str,
    tenant: str,
    version: int | None,
) -> int:
    only_here(queue=queue, owner=owner)
    made = _of(client, tenant).definitions.put(
        name,
        task,
        args=array_of("--args", args),
        kwargs=object_of("--kwargs", kwargs),
        priority=priority,
        expires=expires,
        labels=dict(map(label_of, label)),
        description=description,
        version=version,
    )
    show_record(made, lambda: _record(made))
    return OK


def show(client: Client, *, name: str, tenant: str, version: int | None) -> int:
    found = _of(client, tenant).definitions.get(name, version=version)
    show_record(found, lambda: _record(found))
    return OK


def list_definitions(client: Client, *, prefix: str, tenant: str, limit: int, after: str | None) -> int:
    page = _of(client, tenant).definitions.page(prefix, limit=limit, cursor=after)
    show_rows(DEFINITION_COLUMNS, page.items, _row)
    if page.next is not None:
        note(f"there are more: --after {page.next}")
    return OK


def versions(client: Client, *, name: str, tenant: str, limit: int, before: int | None) -> int:
    show_rows(DEFINITION_COLUMNS, _of(client, tenant).definitions.versions(name, before=before, limit=limit), _row)
    return OK


def delete(client: Client, *, name: str, tenant: str, version: int | None, yes: bool) -> int:
    if not confirm(f"delete definition {name}?", yes=yes):
        return FAILED
    _of(client, tenant).definitions.delete(name, version=version)
    note(f"definition {name} is deleted: `taskmq definition versions {name}` shows what it was")
    return OK


def list_tasks(client: Client, *, prefix: str, limit: int, after: str | None) -> int:
    found: list[TaskView] = []
    cursor = after
    while len(found) < limit:
        page = client.tasks.page(cursor=cursor)
        found += [one for one in page.items if one.name.startswith(prefix)]
        cursor = page.next
        if cursor is None:
            break
    show_rows(TASK_COLUMNS, found[:limit], _task_row)
    if cursor is not None or len(found) > limit:
        note(f"there are more: --after {found[limit - 1].name}")
    return OK


def show_task(client: Client, *, task: str) -> int:
    found = client.tasks.get(task)

    def record() -> dict[str, Any]:
        return {
            **_task_row(found),
            "positional": found.positional,
            "schema": msgspec.json.format(msgspec.json.encode(found.arguments)).decode(),
        }

    show_record(found, record)
    return OK


def _of(client: Client, tenant: str) -> Client:
    return client.for_tenant(tenant) if tenant else client


def _row(one: DefinitionView) -> dict[str, Any]:
    return {
        "definition": one.name,
        "tenant": one.tenant,
        "version": one.version,
        "task": one.task,
        "queue": one.queue,
        "priority": one.priority,
        "owner": "",
        "at": text_of_instant(one.at),
        "by": one.by,
        "description": one.description,
    }


def _record(one: DefinitionView) -> dict[str, Any]:
    return {
        **_row(one),
        "expires": one.expires_in,
        "labels": one.labels,
        "args": one.args,
        "kwargs": one.kwargs,
    }


def _task_row(one: TaskView) -> dict[str, Any]:
    required = one.arguments.get("required", [])
    names = argument_names(tuple(one.positional), one.arguments)
    return {
        "task": one.name,
        "queue": one.queue,
        "arguments": " ".join(name if name in required else f"[{name}]" for name in names),
        "registered": "",
        "by": "",
        "description": one.description,
    }
