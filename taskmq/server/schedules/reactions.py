"""`/reactions`: list, show, put and remove the app's reactions."""

from typing import Annotated, Final

from litestar import Response
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.schedules import PutReactionBody, ReactionList, ReactionView
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, Limit

REACTIONS: Final = Handlers("reactions")


@REACTIONS.handle("GET /reactions", "listReactions", Permission.SCHEDULES_READ, "List reactions")
async def list_reactions(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ReactionList:
    """Return the app's reactions ordered by name; for a tenant, none."""
    return await api.reactions.page(prefix, limit=limit, cursor=cursor)


@REACTIONS.handle("GET /reactions/{name}", "getReaction", Permission.SCHEDULES_READ, "Get a reaction")
async def get_reaction(api: ApiGiven, name: FromPath[str]) -> ReactionView:
    """Return a reaction, what it waits for, and its calls."""
    return await api.reactions.get(name)


@REACTIONS.handle(
    "PUT /reactions/{name}", "putReaction", Permission.SCHEDULES_CHANGE, "Create or replace a reaction", repeats=True
)
async def put_reaction(api: ApiGiven, name: FromPath[str], data: JSONBody[PutReactionBody]) -> Response[ReactionView]:
    """Create a reaction to ends of stored jobs or runs (201) or replace the one with this name (200).

    A scheduler submits its calls to the store. Schedulers know it within a second. With an equal condition it keeps
    its events. A reaction defined in code cannot be replaced.
    """
    is_new = not await api.reactions.has(name)
    return Response(await api.reactions.put(name, data), status_code=201 if is_new else 200)


@REACTIONS.handle("DELETE /reactions/{name}", "removeReaction", Permission.SCHEDULES_CHANGE, "Remove a reaction")
async def remove_reaction(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a reaction with its events. Jobs it started continue. A reaction defined in code cannot be removed."""
    await api.reactions.remove(name)
    return {"status": "removed", "name": name}
