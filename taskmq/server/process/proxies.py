"""Trusted proxies, whose headers name the client's address and scheme.

Trust is explicit, in `$FORWARDED_ALLOW_IPS`. Otherwise any peer could choose the address that rate limits and the
audit log use. A trusted proxy must overwrite `X-Forwarded-For` instead of appending to it.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_network
from typing import Any, Final, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from taskmq.errors import InvalidSetting

_log = logging.getLogger("taskmq.server")

_MOST_REPORTED: Final = 100
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
_Application = Callable[..., Awaitable[None]]


def check_proxies(trusted: str) -> str:
    """Return the trusted addresses and networks, comma-separated; "" for none, `*` for every peer.

    Raises:
        InvalidSetting: an item is not an address or network.
    """
    names = [name.strip() for name in trusted.split(",") if name.strip()]
    if names == ["*"]:
        return "*"
    for name in names:
        try:
            ip_network(name)
        except ValueError:
            raise InvalidSetting(
                f"$FORWARDED_ALLOW_IPS: {name!r} is not an address or network, such as 10.1.2.3 or 10.1.2.0/24"
            ) from None
    return ",".join(names)


def behind_proxies(app: _Application, trusted: str) -> _Application:
    """Wrap an application so that requests from trusted proxies have the client's address and scheme.

    The first such request of an untrusted peer is logged, for up to 100 peers.

    Args:
        trusted: the result of `check_proxies`.
    """
    believing = ProxyHeadersMiddleware(cast("Any", app), trusted)
    reported: set[str] = set()

    async def run(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        peer = (scope.get("client") or ("", 0))[0]
        if trusted and peer in believing.trusted_hosts:
            await believing(cast("Any", scope), cast("Any", receive), cast("Any", send))
            return
        if peer not in reported and len(reported) < _MOST_REPORTED and _is_forwarded(scope):
            reported.add(peer)
            _log.warning(
                "ignoring X-Forwarded-For from %s; its clients share one address and its rate limit: if the proxy is "
                "yours, add it to $FORWARDED_ALLOW_IPS",
                peer,
            )
        await app(scope, receive, send)

    return run


def _is_forwarded(scope: MutableMapping[str, Any]) -> bool:
    return any(name in _FORWARDED for name, _ in scope.get("headers", ()))
