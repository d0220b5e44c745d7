"""Lists and counts from the store's replica, with their age.

A handler with `may_be_stale=True` only shows what it reads. The header `Age` of its response is the number of seconds
by which it may be out of date. A caller that needs newer data sends `Cache-Control: max-age=SECONDS`, or `no-cache`.
"""

import math
import re
from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from taskmq.contracts.jobs import accept_age

_MAX_AGE: Final = re.compile(rb"(?:^|,)\s*max-age=(\d{1,9})\s*(?:,|$)")
_NO_CACHE: Final = re.compile(rb"(?:^|,)\s*no-cache\s*(?:,|$)")


def serve_stale(app: ASGIApp) -> ASGIApp:
    """Accept the age that the caller accepts, in handlers that allow it, and send the age of the response."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["route_handler"].opt.get("may_be_stale"):
            await app(scope, receive, send)
            return
        with accept_age(_limit_of(scope)) as accepted:

            async def send_with_age(message: Message) -> None:
                if message["type"] == "http.response.start" and accepted.age:
                    message["headers"] = [*message["headers"], (b"age", str(math.ceil(accepted.age)).encode())]
                await send(message)

            await app(scope, receive, send_with_age)

    return run


def _limit_of(scope: Scope) -> float:
    """Return the largest age in seconds that the caller accepts."""
    value = b",".join(value for name, value in scope["headers"] if name == b"cache-control").lower()
    if _NO_CACHE.search(value):
        return 0.0
    found = _MAX_AGE.search(value)
    return math.inf if found is None else float(found[1])
