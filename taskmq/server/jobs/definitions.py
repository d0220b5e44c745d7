"""`/definitions`: named, versioned templates of jobs."""

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
)
from taskmq.server.settings import API


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
    """Return a tenant's definitions, ordered by name; for an instance role without a tenant, those without
    a tenant.
    """
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
    """Return the latest version, or the given one. Versions of a deleted definition remain available by number."""
    return _answer(await api.definitions.get(name, version=version))


@get(
    f"{API}/definitions/{{name:str}}/versions",
    permission=Permission.DEFINITIONS_READ,
    operation_id="listDefinitionVersions",
    summary="List the versions of a definition",
    tags=["definitions"],
)
async def list_versions(
    api: ApiGiven,
    name: FromPath[str],
    before: FromQuery[Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None] = None,
    limit: Limit = 50,
) -> DefinitionVersions:
    """Return the versions below `before`, newest first."""
    return DefinitionVersions([*await api.definitions.versions(name, before=before, limit=limit)])


@put(
    f"{API}/definitions/{{name:str}}",
    permission=Permission.DEFINITIONS_CHANGE,
    operation_id="putDefinition",
    summary="Create or update a definition",
    tags=["definitions"],
)
async def put_definition(
    api: ApiGiven,
    name: FromPath[str],
    data: JSONBody[DefinitionBody],
    request: Request[Any, Any, Any],
) -> Response[DefinitionView]:
    """Create a version with this content, unless the latest one is identical.

    412: the version differs from `If-Match`; or, with `If-None-Match: *`, the definition exists.
    """
    with matched_version(request.headers) as version:
        made = await api.definitions.put(name, data, version=version)
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
    """Delete a definition. Existing jobs continue, and its versions are kept."""
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
