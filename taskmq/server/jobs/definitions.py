"""`/definitions`: named, versioned templates that jobs are made from."""

from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get
from litestar.handlers import delete, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionVersions, DefinitionView
from taskmq.model.identity import Permission
from taskmq.server.inputs import (
    ApiGiven,
    Cursor,
    Limit,
    matched_version,
    priority_number,
)
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
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=128)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DefinitionList:
    """A tenant's definitions by name; of a role on the instance that names no tenant, those that have none."""
    return await api.definitions.page(prefix, limit=limit, cursor=cursor)


@get(
    f"{API}/definitions/{{name:str}}",
    permission=Permission.DEFINITIONS_READ,
    operation_id="getDefinition",
    summary="Get a definition",
    tags=["definitions"],
)
async def get_definition(
    api: ApiGiven,
    name: FromPath[str],
    version: Annotated[int | None, QueryParameter(ge=1, le=1 << 31)] = None,
) -> Response[DefinitionView]:
    """The last version, or this one; versions of a deleted definition are found by number."""
    return _answer(await api.definitions.get(name, version=version))


@get(
    f"{API}/definitions/{{name:str}}/versions",
    permission=Permission.DEFINITIONS_READ,
    operation_id="listDefinitionVersions",
    summary="The versions of a definition",
    tags=["definitions"],
)
async def list_versions(
    api: ApiGiven,
    name: FromPath[str],
    before: FromQuery[Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None] = None,
    limit: Limit = 50,
) -> DefinitionVersions:
    """Its versions below `before`, the last one first."""
    return DefinitionVersions([*await api.definitions.versions(name, before=before, limit=limit)])


@put(
    f"{API}/definitions/{{name:str}}",
    permission=Permission.DEFINITIONS_CHANGE,
    operation_id="putDefinition",
    summary="Put a definition",
    tags=["definitions"],
)
async def put_definition(
    api: ApiGiven,
    name: FromPath[str],
    data: JSONBody[DefinitionBody],
    request: Request[Any, Any, Any],
) -> Response[DefinitionView]:
    """Make a version with this content, unless the last one says the same.

    412: it has another version than `If-Match` says; with `If-None-Match: *`, it is there.
    """
    with matched_version(request.headers) as version:
        made = await api.definitions.put(
            name,
            data.task,
            args=data.args,
            kwargs=data.kwargs,
            queue=data.queue,
            priority=priority_number(data.priority),
            expires=data.expires_in,
            labels=data.labels,
            description=data.description,
            owner=data.owner,
            version=version,
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
async def delete_definition(api: ApiGiven, name: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, str]:
    """Make no more jobs from it; jobs that were made from it go on, and its versions are kept."""
    with matched_version(request.headers) as version:
        await api.definitions.delete(name, version=version)
    return {"status": "deleted", "name": name}


DEFINITIONS: Final[tuple[Any, ...]] = (
    list_definitions,
    get_definition,
    list_versions,
    put_definition,
    delete_definition,
)


def _answer(definition: DefinitionView) -> Response[DefinitionView]:
    return Response(definition, headers={"ETag": f'"{definition.version}"'})
