"""`/definitions`: named, versioned templates that jobs are made from."""

from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get
from litestar.handlers import delete, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionVersions, DefinitionView
from taskmq.app_api.views import instant_text, rendered
from taskmq.errors import DefinitionNotFound, NotPermitted
from taskmq.model.identity import Permission
from taskmq.model.jobs.definitions import Definition
from taskmq.server.access import Caller
from taskmq.server.inputs import CallerGiven, Cursor, Limit, ServedApp, matched_version, priority_number
from taskmq.server.settings import API

__all__ = ["DEFINITIONS"]


@get(
    f"{API}/definitions",
    permission=Permission.DEFINITIONS_READ,
    operation_id="listDefinitions",
    summary="List definitions",
    tags=["definitions"],
)
async def list_definitions(
    app: ServedApp,
    caller: CallerGiven,
    prefix: Annotated[str, QueryParameter(max_length=128)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DefinitionList:
    """A tenant's definitions by name; of a role on the instance that names no tenant, those that have none."""
    page = await app.definitions.alist(prefix, tenant=caller.tenant or "", after=cursor or None, limit=limit)
    return DefinitionList(rendered(_view, page.definitions), page.after)


@get(
    f"{API}/definitions/{{name:str}}",
    permission=Permission.DEFINITIONS_READ,
    operation_id="getDefinition",
    summary="Get a definition",
    tags=["definitions"],
)
async def get_definition(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    version: Annotated[int | None, QueryParameter(ge=1, le=1 << 31)] = None,
) -> Response[DefinitionView]:
    """The last version, or this one; versions of a deleted definition are found by number."""
    return _answer(await app.definitions.aget(name, tenant=caller.tenant or "", version=version))


@get(
    f"{API}/definitions/{{name:str}}/versions",
    permission=Permission.DEFINITIONS_READ,
    operation_id="listDefinitionVersions",
    summary="The versions of a definition",
    tags=["definitions"],
)
async def list_versions(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    before: FromQuery[Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None] = None,
    limit: Limit = 50,
) -> DefinitionVersions:
    """Its versions below `before`, the last one first."""
    found = await app.definitions.aversions(name, tenant=caller.tenant or "", before=before, limit=limit)
    return DefinitionVersions(rendered(_view, found))


@put(
    f"{API}/definitions/{{name:str}}",
    permission=Permission.DEFINITIONS_CHANGE,
    operation_id="putDefinition",
    summary="Put a definition",
    tags=["definitions"],
)
async def put_definition(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    data: JSONBody[DefinitionBody],
    request: Request[Any, Any, Any],
) -> Response[DefinitionView]:
    """Make a version with this content, unless the last one says the same.

    412: it has another version than `If-Match` says; with `If-None-Match: *`, it is there.
    """
    _check_task(caller, data.task)
    with suppress(DefinitionNotFound):
        _check_task(caller, (await app.definitions.aget(name, tenant=caller.tenant or "")).content.task)
    await caller.note_action(app, "definition.put", subject=name, after={"task": data.task})
    with matched_version(request.headers) as version:
        made = await app.definitions.aput(
            name,
            data.task,
            args=data.args,
            kwargs=data.kwargs,
            priority=priority_number(data.priority),
            expires=data.expires_in,
            labels=data.labels,
            description=data.description,
            tenant=caller.tenant or "",
            version=version,
            by=caller.name,
        )
    return _answer(made)


@delete(
    f"{API}/definitions/{{name:str}}",
    status_code=200,
    permission=Permission.DEFINITIONS_CHANGE,
    operation_id="deleteDefinition",
    summary="Delete a definition",
    tags=["definitions"],
)
async def delete_definition(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], request: Request[Any, Any, Any]
) -> dict[str, str]:
    """Make no more jobs from it; jobs that were made from it go on, and its versions are kept."""
    tenant = caller.tenant or ""
    present = await app.definitions.aget(name, tenant=tenant)
    _check_task(caller, present.content.task)
    await caller.note_action(app, "definition.delete", subject=name, after={"task": present.content.task})
    with matched_version(request.headers) as version:
        await app.definitions.adelete(name, tenant=tenant, version=version)
    return {"status": "deleted", "name": name}


DEFINITIONS: Final[tuple[Any, ...]] = (
    list_definitions,
    get_definition,
    list_versions,
    put_definition,
    delete_definition,
)


def _check_task(caller: Caller, task: str) -> None:
    if not caller.allows(task):
        raise NotPermitted(f"task {task!r} is not among those that you may call")


def _answer(definition: Definition) -> Response[DefinitionView]:
    return Response(_view(definition), headers={"ETag": f'"{definition.version}"'})


def _view(definition: Definition) -> DefinitionView:
    content = definition.content
    return DefinitionView(
        name=definition.name,
        tenant=definition.tenant,
        version=definition.version,
        at=instant_text(definition.at),
        by=definition.by,
        task=content.task,
        args=content.args,
        kwargs=content.kwargs,
        queue=content.queue,
        priority=content.priority,
        expires_in=None if content.expires is None else content.expires / 1000,
        description=content.description,
        labels=dict(content.labels),
    )
