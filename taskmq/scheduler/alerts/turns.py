"""Turns of tenants in sending notices, so that slow receivers of one tenant do not delay the others.

A receiver may delay its answer up to the timeout. Of the few notices sent at a time, at most two belong to one
tenant, and at most one goes to each host of a tenant. Slow hosts of all tenants share two connections, so a fast
receiver always finds a free one.
"""

from typing import Final

from taskmq.contracts.history import AlertNotice, NoticeTurn
from taskmq.model.history.channels import channel_host

_OF_TENANT: Final = 2
_IN_SLOW_LANE: Final = 2
_SLOW_SECONDS: Final = 5.0
_SLOW_FOR_SECONDS: Final = 600.0
_MOST_SLOW: Final = 200

_Host = tuple[str, str]


class NoticeTurns:
    """Notices that one sender is sending. Instants are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._after = ""
        self._begun: dict[str, tuple[_Host, float]] = {}
        # Slow hosts by tenant, and until when they count as slow.
        self._slow: dict[_Host, float] = {}

    def turn(self, now: float) -> NoticeTurn:
        """Return which notices may be sent now."""
        self._slow = {host: until for host, until in self._slow.items() if until > now}
        hosts = {host for host, _ in self._begun.values()}
        under_way = [tenant for (tenant, _), _ in self._begun.values()]
        slow = self._slow.keys() if len(hosts & self._slow.keys()) >= _IN_SLOW_LANE else set[_Host]()
        return NoticeTurn(
            after=self._after,
            tenants=frozenset(tenant for tenant in under_way if under_way.count(tenant) >= _OF_TENANT),
            hosts=frozenset(hosts | slow),
        )

    def begin(self, notice: AlertNotice, now: float) -> None:
        """Record that a notice is being sent."""
        tenant = notice.rule.tenant
        self._after = tenant
        self._begun[notice.id] = ((tenant, channel_host(notice.channel)), now)

    def end(self, notice: AlertNotice, now: float) -> None:
        """Record that an attempt has ended, whether or not it succeeded."""
        host, begun = self._begun.pop(notice.id)
        self._slow.pop(host, None)
        if now - begun >= _SLOW_SECONDS:
            if len(self._slow) >= _MOST_SLOW:
                del self._slow[next(iter(self._slow))]
            self._slow[host] = now + _SLOW_FOR_SECONDS
