"""A time limit for reads, so that one expensive filter does not hold up other callers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from taskmq.server.access import is_public
from taskmq.server.edge import fact_of
from taskmq.server.problems import Problem
from taskmq.server.settings import ServerSettings

_SECONDS_TO_RETRY: Final = 30


def limit_reads(app: ASGIApp) -> ASGIApp:
    """Abort a GET whose response does not begin within `query_time`."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        settings: ServerSettings = scope["litestar_app"].state["settings"]
        if fact_of(scope, "method") != "GET" or is_public(scope["route_handler"]):
            await app(scope, receive, send)
            return
        async with time_limit(settings) as timer:

            async def begin(message: Message) -> None:
                # Streams have no time limit.
                timer.reschedule(None)
                await send(message)

            await app(scope, receive, begin)

    return run


@asynccontextmanager
async def time_limit(settings: ServerSettings) -> AsyncGenerator[asyncio.Timeout]:
    """Abort a read after `query_time`. The store cancels its query, too.

    Raises:
        Problem: the time limit was exceeded.
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
            f"the query took longer than {settings.query_time:g} s and was aborted: use a narrower "
            "filter or a shorter period, or try again later",
            headers={"Retry-After": str(_SECONDS_TO_RETRY)},
        ) from error
