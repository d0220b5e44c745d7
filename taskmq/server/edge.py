"""The outermost layer of the server, for every request and response.

It assigns each request an id (`X-Request-ID`), strips the root path, keeps an encoded slash within its path segment,
answers HEAD as GET without a body, parses the client's address, and adds the security headers.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Responses depend on the signed-in user.
    (b"cache-control", b"no-store"),
)
# Only over HTTPS; browsers ignore it otherwise.
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")
_ENCODED_SLASH: Final = re.compile(r"%2[fF]")
# Replaces an encoded slash during routing. Clients cannot send it, because it is not valid UTF-8.
_SLASH: Final = "\ud800"


class Edge:
    """Wraps an ASGI application.

    Attributes:
        is_stopping: whether the server is stopping. Each response then asks the client to reconnect.

    Args:
        root_path: the public path prefix. A proxy may or may not have removed it.
        on_stop: closes event streams, which would not end otherwise.
        on_response: called for each response with its operation, status and the seconds until it began.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        root_path: str = "",
        on_stop: Callable[[], None],
        on_response: Callable[[str, int, float], None],
    ) -> None:
        self.is_stopping: bool = False
        self._on_response = on_response
        self._app = app
        self._on_stop = on_stop
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        own: Any = dict(scope)
        request_id = _request_id(scope)
        own["taskmq_request_id"] = request_id
        if scope["client"] is not None:
            own["client"] = (_parse_address(scope["client"][0]), scope["client"][1])
        own["path"], own["root_path"] = self._strip_prefixes(scope), ""
        # Litestar strips a trailing slash.
        own["taskmq_path"] = own["path"]
        # The prefix for links: the setting, or the host's root path.
        own["taskmq_root"] = self._root_path or fact_of(scope, "root_path")
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_secure = fact_of(scope, "scheme") == "https"
        is_head, is_complete = scope["method"] == "HEAD", False
        if is_head:
            own["method"] = "GET"

        async def send_with_headers(message: Message) -> None:
            nonlocal is_complete
            if message["type"] == "http.response.start":
                # Litestar has set it by now, if the path exists.
                handler = own.get("route_handler")
                operation = getattr(handler, "operation_id", None)
                methods = None if handler is None else handler.opt.get("methods")
                self._on_response(operation or "", message["status"], loop.time() - began)
                there = {name.lower() for name, _ in message["headers"]}
                added = [(b"x-request-id", request_id.encode())]
                added += [pair for pair in (*_HEADERS, *((_HSTS,) if is_secure else ())) if pair[0] not in there]
                if self.is_stopping:
                    added.append((b"connection", b"close"))
                message["headers"] = [*(_complete_allow(header, methods) for header in message["headers"]), *added]
            elif is_head:
                if is_complete:
                    # A stream continues until it notices that its client disconnected.
                    return
                is_complete = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(own, receive, send_with_headers)

    def begin_stop(self) -> None:
        """End the event streams and tell clients and load balancers to reconnect elsewhere, before the
        server stops.
        """
        self.is_stopping = True
        self._on_stop()

    def _strip_prefixes(self, scope: Scope) -> str:
        path = _decode_path(scope)
        # Strip the prefix of the host application, and then our own.
        for prefix in (fact_of(scope, "root_path"), self._root_path):
            if prefix and (path == prefix or path.startswith(f"{prefix}/")):
                path = path[len(prefix) :] or "/"
        return path


def fact_of(scope: object, name: str) -> str:
    """Return a string of the connection's scope, ours (`taskmq_...`) or ASGI's; "" if missing."""
    found = cast("Mapping[str, object]", scope).get(name)
    return found if isinstance(found, str) else ""


def link_path(scope: Scope) -> str:
    """Return the request's path below the root path, percent-encoded for a link."""
    return "/".join(quote(part.replace(_SLASH, "/"), safe="") for part in fact_of(scope, "taskmq_path").split("/"))


def restoring_slashes(app: ASGIApp) -> ASGIApp:
    """Restore encoded slashes in the path parameters of a routed request."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if _SLASH in scope["path"]:
            own: Any = scope
            own["path"] = own["path"].replace(_SLASH, "/")
            # The router shares its dictionaries between requests.
            own["path_params"] = {
                name: value.replace(_SLASH, "/") if isinstance(value, str) else value
                for name, value in own["path_params"].items()
            }
        await app(scope, receive, send)

    return run


@lru_cache(maxsize=1_024)
def _parse_address(text: str) -> str:
    """Return the client's normalised address; "" for an invalid one, which a proxy may pass."""
    try:
        return str(ip_address(text.partition("%")[0]))
    except ValueError:
        return ""


def _decode_path(scope: Scope) -> str:
    """Decode the path, except encoded slashes within its segments.

    A host that mounts the server may strip a prefix from the path but not from `raw_path`.
    """
    path: str = scope["path"]
    raw: bytes = cast("Mapping[str, Any]", scope).get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return path
    parts = _ENCODED_SLASH.split(raw.partition(b"?")[0].decode("ascii", errors="replace"))
    marked = _SLASH.join(map(unquote, parts))
    return marked[len(marked) - len(path) :] if marked.replace(_SLASH, "/").endswith(path) else path


def _complete_allow(header: tuple[bytes, bytes], methods: str | None) -> tuple[bytes, bytes]:
    """Name all methods of the path in `Allow`, HEAD with GET. Other headers are returned unchanged."""
    name, value = header
    if name.lower() != b"allow":
        return header
    known = value.decode() if methods is None else methods
    return name, (f"{known}, HEAD" if "GET" in known else known).encode()


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name.lower() == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return secrets.token_hex(12)
