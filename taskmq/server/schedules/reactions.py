"""`/reactions`: list and show the app's reactions."""

from typing import Annotated, Any, Final

from litestar import get
from litestar.params import FromPath, QueryParameter

from taskmq.api.schedules import ReactionList, ReactionView
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.settings import API

__all__ = ["REACTIONS"]


@get(
    f"{API}/reactions",
    permission=Permission.SCHEDULES_READ,
    operation_id="listReactions",
    summary="List reactions",
    tags=["reactions"],
)
async def list_reactions(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ReactionList:
    """Return the app's reactions ordered by name; for a tenant, none."""
    return await api.reactions.page(prefix, limit=limit, cursor=cursor)


@get(
    f"{API}/reactions/{{name:str}}",
    permission=Permission.SCHEDULES_READ,
    operation_id="getReaction",
    summary="Get a reaction",
    tags=["reactions"],
)
async def get_reaction(api: ApiGiven, name: FromPath[str]) -> ReactionView:
    """Return a reaction, what it waits for, and its calls."""
    return await api.reactions.get(name)


REACTIONS: Final[tuple[Any, ...]] = (list_reactions, get_reaction)
