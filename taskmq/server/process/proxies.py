"""The proxies that the server trusts: theirs are the headers that name a client and the scheme it used.

Trust is explicit, `$FORWARDED_ALLOW_IPS`: any peer could otherwise choose the address that limits count and the audit
keeps. A trusted proxy has to overwrite `X-Forwarded-For`, not append to what its client has sent.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_network
from typing import Any, Final, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from taskmq.errors import InvalidSetting

__all__ = ["behind_proxies", "check_proxies"]

_log = logging.getLogger("taskmq.server")

_MOST_REPORTED: Final = 100
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
_Application = Callable[..., Awaitable[None]]


def check_proxies(trusted: str) -> str:
    """Return the addresses and networks that are trusted, with commas between; "" for none, `*` for every peer.

    Raises:
        InvalidSetting: one of them is no address and no network.
    """
    names = [name.strip() for name in trusted.split(",") if name.strip()]
    if names == ["*"]:
        return "*"
    for name in names:
        try:
            ip_network(name)
        except ValueError:
            raise InvalidSetting(
                f"$FORWARDED_ALLOW_IPS: {name!r} is no address and no network: say 10.1.2.3 or 10.1.2.0/24"
            ) from None
    return ",".join(names)


def behind_proxies(app: _Application, trusted: str) -> _Application:
    """Wrap an application: clients of trusted proxies have the address and the scheme that their proxy names.

    The first request of another peer that has such headers is logged, for up to 100 peers.

    Args:
        trusted: as `check_proxies` returns it.
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
                "X-Forwarded-For from %s is ignored, and its clients share one address and its limits: add the proxy "
                "to $FORWARDED_ALLOW_IPS if it is yours",
                peer,
            )
        await app(scope, receive, send)

    return run


def _is_forwarded(scope: MutableMapping[str, Any]) -> bool:
    return any(name in _FORWARDED for name, _ in scope.get("headers", ()))
