"""Client of RabbitMQ's HTTP API, for what AMQP cannot do. It needs the management plugin."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from taskmq.errors import AccessDenied, BrokerUnavailable, TaskMQError
from taskmq_rabbitmq.model.url import Endpoint, tls_context

if TYPE_CHECKING:
    import http.client

_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_SECONDS: Final = 15.0
_PORTS: Final = (15672, 15671)
_ENABLE: Final = (
    "enable it on the node with `rabbitmq-plugins enable rabbitmq_management`, or say where it is with "
    "?management=http://HOST:PORT in the broker URL"
)


class ManagementUnavailable(BrokerUnavailable):
    """RabbitMQ's HTTP API could not be reached."""


class ManagementNotFound(TaskMQError):
    """RabbitMQ's HTTP API knows no object of that name."""


class ManagementRefused(TaskMQError):
    """RabbitMQ's HTTP API refused a request that this user may make.

    Attributes:
        reason: in the API's words.
    """

    def __init__(self, message: str, *, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Management:
    """The HTTP API of the broker at `endpoint`, as the endpoint's user.

    Paths are what follows `/api/`, with each name in them encoded by `segment`. Each request has a connection of its
    own, in a thread. If the URL contains no address, each host is tried in turn with RabbitMQ's default port. An
    answer is used only if it comes from the cluster that AMQP is connected to, not from another one on the host.
    Proxies of the environment are not used, redirects are not followed.

    Every request raises, besides its own errors:

    Args:
        endpoint: address and user.
        token: returns a token to send instead of the endpoint's password; called before each request.
        cluster_name: name of the cluster that AMQP is connected to; None if it is unknown.
        ports: RabbitMQ's own, without and with TLS.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        token: Callable[[], Awaitable[str]] | None = None,
        cluster_name: Callable[[], Awaitable[str | None]] | None = None,
        ports: tuple[int, int] = _PORTS,
    ) -> None:
        self._token = token
        # An address from the URL is trusted.
        self._cluster_name = cluster_name if endpoint.management is None else None
        self._known: set[str] = set()
        self._user = endpoint.user
        self._password = endpoint.password
        self._roots = _roots(endpoint, ports)
        self._context = _context(endpoint, self._roots)
        self.vhost: Final = segment(endpoint.vhost)

    def __repr__(self) -> str:
        return f"<Management {self.address}>"

    @property
    def address(self) -> str:
        """Address of the API, without credentials."""
        return ", ".join(self._roots)

    async def get(self, path: str, **query: str) -> Any:
        """Return the decoded object at `path`."""
        return await self._request("GET", path, query)

    async def clock_ms(self) -> int | None:
        """Return the node's time, cut to whole seconds, as ms since the epoch; None if no node answers."""
        import http.client

        for root in self._roots if self._cluster_name is None else sorted(self._known):
            try:
                return await asyncio.to_thread(self._date, root)
            except (OSError, http.client.HTTPException, TypeError, ValueError):
                # The answer may be anything, or have no date.
                continue
        return None

    async def put(self, path: str, body: object) -> None:
        """Create or replace the object at `path`."""
        await self._request("PUT", path, {}, body)

    async def post(self, path: str, body: object) -> Any:
        """Return the decoded answer of the API; None for an empty answer."""
        return await self._request("POST", path, {}, body)

    async def delete(self, path: str, **query: str) -> None:
        """Delete the object at `path`."""
        await self._request("DELETE", path, query)

    async def _request(self, method: str, path: str, query: dict[str, str], body: object = None) -> Any:
        # Imported here, because it costs as much as the rest of this package, and publishing and running tasks do not
        # need it.
        import http.client

        headers = {
            # Some of its resources do not offer JSON.
            "Accept": "*/*",
            "Content-Type": "application/json",
            "Authorization": _authorization(self._user, await self._token() if self._token else self._password),
        }
        data = None if body is None else json.dumps(body).encode()
        target = f"/api/{path}?{urlencode(query)}" if query else f"/api/{path}"
        failures: list[str] = []
        for root in self._roots:
            try:
                if (foreign := await self._foreign_name(root, headers)) is not None:
                    failures.append(f"{root}: this is another RabbitMQ, {foreign}")
                    continue
                status, text = await asyncio.to_thread(self._exchange, root, method, target, data, headers)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{root}: {str(error) or type(error).__name__}")
                continue
            return self._answer(root, method, target, status, text)
        raise ManagementUnavailable(f"RabbitMQ's HTTP API did not answer at {'; '.join(failures)}; {_ENABLE}")

    async def _foreign_name(self, root: str, headers: dict[str, str]) -> str | None:
        """Return the name of the cluster that answers, if it is another one."""
        if self._cluster_name is None or root in self._known:
            return None
        wanted = await self._cluster_name()
        status, text = await asyncio.to_thread(self._exchange, root, "GET", "/api/overview", None, headers)
        if wanted is None or status != 200:
            # The request itself will report the error.
            return None
        found = _cluster_of(text)
        if found is not None and found != wanted:
            return found
        self._known.add(root)
        return None

    def _exchange(
        self, root: str, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        connection = self._connect(root)
        try:
            connection.request(method, urlsplit(root).path + target, body=data, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _date(self, root: str) -> int:
        from email.utils import parsedate_to_datetime

        connection = self._connect(root)
        try:
            connection.request("GET", f"{urlsplit(root).path}/api/overview")
            date = parsedate_to_datetime(connection.getresponse().headers["Date"])
        finally:
            connection.close()
        return int(date.timestamp() * 1000)

    def _connect(self, root: str) -> "http.client.HTTPConnection":
        import http.client

        parts = urlsplit(root)
        host = parts.hostname or "localhost"
        if self._context is None:
            return http.client.HTTPConnection(host, parts.port, timeout=_SECONDS)
        return http.client.HTTPSConnection(host, parts.port, timeout=_SECONDS, context=self._context)

    def _answer(self, root: str, method: str, target: str, status: int, text: str) -> Any:
        what = f"{method} {root}{target}"
        if status in (401, 403):
            raise AccessDenied(
                f"{what}: {_reason(text)}: user {self._user!r} needs the right password, access to the virtual host, "
                f"and a tag: `rabbitmqctl set_user_tags {self._user} management` (`monitoring` to see the nodes, "
                "`policymaker` to set policies, `administrator` for virtual hosts and users)"
            )
        if status == 404:
            raise ManagementNotFound(f"{what}: {_reason(text)}")
        if status >= 500:
            raise ManagementUnavailable(f"{what}: answered {status}: {_reason(text)}")
        if status >= 300:
            reason = _reason(text)
            raise ManagementRefused(f"{what}: answered {status}: {reason}", status=status, reason=reason)
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError:
            raise ManagementUnavailable(f"{what}: the response is not from RabbitMQ's HTTP API; {_ENABLE}") from None


def segment(name: str) -> str:
    """Return `name` as one segment of a path."""
    return quote(name, safe="")


def _authorization(user: str, secret: str) -> str:
    if _JWT.fullmatch(secret):
        return f"Bearer {secret}"
    return f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"


def _roots(endpoint: Endpoint, ports: tuple[int, int]) -> tuple[str, ...]:
    if endpoint.management is not None:
        return (endpoint.management,)
    scheme, port = ("http", ports[0]) if endpoint.tls is None else ("https", ports[1])
    names = dict.fromkeys(f"[{host.name}]" if ":" in host.name else host.name for host in endpoint.hosts)
    return tuple(f"{scheme}://{name}:{port}" for name in names)


def _context(endpoint: Endpoint, roots: tuple[str, ...]) -> ssl.SSLContext | None:
    if not roots[0].startswith("https:"):
        return None
    return tls_context(endpoint.tls) if endpoint.tls is not None else ssl.create_default_context()


def _cluster_of(overview: str) -> str | None:
    try:
        answer = json.loads(overview)
    except ValueError:
        return None
    name = cast("dict[str, object]", answer).get("cluster_name") if isinstance(answer, dict) else None
    return name if isinstance(name, str) else None


def _reason(text: str) -> str:
    try:
        answer = json.loads(text)
    except ValueError:
        return text[:200] or "no reason given"
    found = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
    return str(found.get("reason") or found.get("error") or text)
