"""The outermost layer of the server: what every request and every answer goes through.

It names each request (`X-Request-ID`), strips the root path, keeps an encoded slash within its segment of the path,
answers HEAD as GET without a body, reads the client's address, and adds the security headers.
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

__all__ = ["Edge", "fact_of", "link_path", "restoring_slashes"]

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Answers are about who is signed in.
    (b"cache-control", b"no-store"),
)
# Of HTTPS alone: browsers ignore it elsewhere.
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")
_ENCODED_SLASH: Final = re.compile(r"%2[fF]")
# Stands for an encoded slash while the request is routed. No client can send it: it has no form in UTF-8.
_SLASH: Final = "\ud800"


class Edge:
    """Wraps an ASGI application.

    Attributes:
        is_stopping: the server is about to stop: each answer asks its client to come over another connection.

    Args:
        root_path: the prefix under which clients see it; a proxy may have taken it off already, or not.
        closing: ends what would not end by itself.
        answered: called for each answer: the operation, its status, and how many seconds it took to begin.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        root_path: str = "",
        closing: Callable[[], None],
        answered: Callable[[str, int, float], None],
    ) -> None:
        self.is_stopping: bool = False
        self._answered = answered
        self._app = app
        self._closing = closing
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI has it."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        own: Any = dict(scope)
        request_id = _request_id(scope)
        own["taskmq_request_id"] = request_id
        if scope["client"] is not None:
            own["client"] = (_parsed_address(scope["client"][0]), scope["client"][1])
        own["path"], own["root_path"] = self._inside(scope), ""
        # Litestar takes a slash off at the end.
        own["taskmq_path"] = own["path"]
        # The host's prefix, where the server has no setting: links begin with it.
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
                # Litestar has found it by now, where there is one.
                handler = own.get("route_handler")
                operation = getattr(handler, "operation_id", None)
                methods = None if handler is None else handler.opt.get("methods")
                self._answered(operation or "", message["status"], loop.time() - began)
                there = {name.lower() for name, _ in message["headers"]}
                added = [(b"x-request-id", request_id.encode())]
                added += [pair for pair in (*_HEADERS, *((_HSTS,) if is_secure else ())) if pair[0] not in there]
                if self.is_stopping:
                    added.append((b"connection", b"close"))
                message["headers"] = [*(_allowed(header, methods) for header in message["headers"]), *added]
            elif is_head:
                if is_complete:
                    # A stream goes on until it learns that its client has gone.
                    return
                is_complete = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(own, receive, send_with_headers)

    def begin_stop(self) -> None:
        """End the streams of events, and let clients and load balancers go elsewhere, before the server stops."""
        self.is_stopping = True
        self._closing()

    def _inside(self, scope: Scope) -> str:
        path = _segmented(scope)
        # Of the application that this one is mounted in, and our own.
        for prefix in (fact_of(scope, "root_path"), self._root_path):
            if prefix and (path == prefix or path.startswith(f"{prefix}/")):
                path = path[len(prefix) :] or "/"
        return path


def fact_of(scope: object, name: str) -> str:
    """A text of a connection's scope, ours (`taskmq_...`) or ASGI's; "" where it is not there."""
    found = cast("Mapping[str, object]", scope).get(name)
    return found if isinstance(found, str) else ""


def link_path(scope: Scope) -> str:
    """Return the path of a request below the root path, percent-encoded as a link has it."""
    return "/".join(quote(part.replace(_SLASH, "/"), safe="") for part in fact_of(scope, "taskmq_path").split("/"))


def restoring_slashes(app: ASGIApp) -> ASGIApp:
    """Give handlers the slashes that the path parameters of a routed request have in them."""

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
def _parsed_address(text: str) -> str:
    """Return the client's address in its one form; "" for what is no address, which a proxy may hand on."""
    try:
        return str(ip_address(text.partition("%")[0]))
    except ValueError:
        return ""


def _segmented(scope: Scope) -> str:
    """Decode the path, but for the slashes within its segments.

    A host that mounts the server may have taken a prefix off the path and left it in `raw_path`.
    """
    path: str = scope["path"]
    raw: bytes = cast("Mapping[str, Any]", scope).get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return path
    parts = _ENCODED_SLASH.split(raw.partition(b"?")[0].decode("ascii", errors="replace"))
    marked = _SLASH.join(map(unquote, parts))
    return marked[len(marked) - len(path) :] if marked.replace(_SLASH, "/").endswith(path) else path


def _allowed(header: tuple[bytes, bytes], methods: str | None) -> tuple[bytes, bytes]:
    """Name all methods of the path in `Allow`, HEAD with GET; leave other headers as they are."""
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
