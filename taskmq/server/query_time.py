"""How long a read may take until its answer begins, so that one costly filter does not hold up other callers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from taskmq.server.access import is_public
from taskmq.server.edge import fact_of
from taskmq.server.problems import Problem
from taskmq.server.settings import ServerSettings

__all__ = ["answered_in_time", "reading_in_time"]

_SECONDS_TO_RETRY: Final = 30


def reading_in_time(app: ASGIApp) -> ASGIApp:
    """Give a GET up whose answer does not begin within `query_time`."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        settings: ServerSettings = scope["litestar_app"].state["settings"]
        if fact_of(scope, "method") != "GET" or is_public(scope["route_handler"]):
            await app(scope, receive, send)
            return
        async with answered_in_time(settings) as timer:

            async def begin(message: Message) -> None:
                # Streams go on for as long as their clients like.
                timer.reschedule(None)
                await send(message)

            await app(scope, receive, begin)

    return bounded


@asynccontextmanager
async def answered_in_time(settings: ServerSettings) -> AsyncGenerator[asyncio.Timeout]:
    """Give a read up after `query_time`; its store stops working for it, too.

    Raises:
        Problem: it took longer.
    """
    timer = asyncio.timeout(settings.query_time or None)
    try:
        async with timer:
            yield timer
    except TimeoutError as error:
        if not timer.expired():
            raise
        raise Problem(
            503,
            "query_too_slow",
            f"there was no answer within {settings.query_time:g} s, and the server has given up: ask for less, "
            "by a narrower filter or a shorter time, or try again later",
            headers={"Retry-After": str(_SECONDS_TO_RETRY)},
        ) from error
