"""`/definitions`: named, versioned templates of jobs."""

from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionVersions, DefinitionView
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import (
    ApiGiven,
    Cursor,
    Limit,
    matched_version,
)

DEFINITIONS: Final = Handlers("definitions")


@DEFINITIONS.handle("GET /definitions", "listDefinitions", Permission.DEFINITIONS_READ, "List definitions")
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


@DEFINITIONS.handle("GET /definitions/{name}", "getDefinition", Permission.DEFINITIONS_READ, "Get a definition")
async def get_definition(
    api: ApiGiven,
    name: FromPath[str],
    version: Annotated[int | None, QueryParameter(ge=1, le=1 << 31)] = None,
) -> Response[DefinitionView]:
    """Return the latest version, or the given one. Versions of a deleted definition remain available by number."""
    return _answer(await api.definitions.get(name, version=version))


@DEFINITIONS.handle(
    "GET /definitions/{name}/versions",
    "listDefinitionVersions",
    Permission.DEFINITIONS_READ,
    "List the versions of a definition",
)
async def list_versions(
    api: ApiGiven,
    name: FromPath[str],
    before: FromQuery[Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None] = None,
    limit: Limit = 50,
) -> DefinitionVersions:
    """Return the versions below `before`, newest first."""
    return DefinitionVersions([*await api.definitions.versions(name, before=before, limit=limit)])


@DEFINITIONS.handle(
    "PUT /definitions/{name}", "putDefinition", Permission.DEFINITIONS_CHANGE, "Create or update a definition"
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


@DEFINITIONS.handle(
    "DELETE /definitions/{name}", "deleteDefinition", Permission.DEFINITIONS_CHANGE, "Delete a definition"
)
async def delete_definition(api: ApiGiven, name: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, str]:
    """Delete a definition. Existing jobs continue, and its versions are kept."""
    with matched_version(request.headers) as version:
        await api.definitions.delete(name, version=version)
    return {"status": "deleted", "name": name}


def _answer(definition: DefinitionView) -> Response[DefinitionView]:
    return Response(definition, headers={"ETag": f'"{definition.version}"'})
