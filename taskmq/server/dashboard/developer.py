"""Identification for a development server: every request is from its developer, without sign-in.

Any site open in a browser can send requests to this machine. A request is therefore only accepted if it names this
machine by a loopback name, not by a foreign name that resolves to it, and if no other site sent it.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection

from taskmq.errors import NotAuthenticated
from taskmq.model.identity import EVERYWHERE, Identity, Membership, Role
from taskmq.server.settings import LOOPBACK
from taskmq.server.sign_in import is_from_own_pages

_DEVELOPER: Final = Identity(
    user_id="developer",
    user="developer",
    memberships=(Membership(EVERYWHERE, Role.ADMIN),),
    via="host",
    credential="development",
)


async def identify_developer(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
    """Return the developer, an admin of the instance.

    Raises:
        NotAuthenticated: the request comes from another machine or another site.
    """
    host = connection.headers.get("host", "")
    address = "" if connection.client is None else connection.client.host
    # A proxy on this machine would let others in.
    forwarded = [text.strip() for text in connection.headers.get("x-forwarded-for", "").split(",") if text.strip()]
    is_own = (
        {address, *forwarded} <= LOOPBACK
        and urlsplit(f"//{host}").hostname in LOOPBACK
        and is_from_own_pages(connection)
    )
    if not is_own:
        raise NotAuthenticated("this is a development server: open it on its own machine, at http://127.0.0.1")
    return _DEVELOPER
