"""Sends the alerts that go on to Alertmanagers each minute: an Alertmanager ends what is not repeated.

Nothing of it is kept: what could not be sent is sent with the next ones, by the scheduler that looks at rules then.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from taskmq.contracts.history import AlertNotice
from taskmq.errors import InvalidOption
from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, AlertState
from taskmq.model.history.channels import is_told, parse_channel, shown_channel
from taskmq.scheduler.alerts.http import DeliveryFailed, post
from taskmq.scheduler.alerts.messages import alertmanager_body
from taskmq.scheduler.alerts.settings import AlertSettings

__all__ = ["AlertRepetition"]

_log = logging.getLogger("taskmq.scheduler")

_PERIOD_MS: Final = 60_000
# Rules are looked at after that: an Alertmanager that takes longer gets it the next time.
_PATIENCE: Final = 10.0
# Of one request: the loop, on which jobs are dispatched, waits for no more of them than that.
_TOGETHER: Final = 200
_OF_TENANT: Final = 2


class AlertRepetition:
    """Repeats the alerts that fire, whatever `repeat` of their rules is; those that were never told are left out."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._repeated = 0

    async def repeat(self, rules: Iterable[AlertRule], alerts: Iterable[Alert], *, now: int) -> None:
        """Send those of the alerts that go on, once a minute.

        Args:
            now: ms since the epoch.
        """
        if now - self._repeated < _PERIOD_MS:
            return
        channels = _by_channel({(rule.tenant, rule.name): rule for rule in rules}, alerts, now)
        if channels:
            self._repeated = now
            # However many Alertmanagers a tenant names, it holds no more connections than that.
            rooms = {tenant: asyncio.Semaphore(_OF_TENANT) for tenant, _ in channels}
            await asyncio.gather(
                *(self._send(channel, notices, rooms[tenant]) for (tenant, channel), notices in channels.items())
            )

    async def _send(self, channel: str, notices: list[AlertNotice], room: asyncio.Semaphore) -> None:
        url = f"{parse_channel(channel).target.rstrip('/')}/api/v2/alerts"
        try:
            async with asyncio.timeout(_PATIENCE), room:
                for notice in notices:
                    body = alertmanager_body(notice)
                    await post(url, body, headers={}, allows_private=self._settings.allows_private)
        except TimeoutError:
            _log.warning("alerts are not repeated over %s: no answer in %g s", shown_channel(channel), _PATIENCE)
        except (DeliveryFailed, InvalidOption) as error:
            _log.warning("alerts are not repeated over %s: %s", shown_channel(channel), error)


def _by_channel(
    rules: Mapping[tuple[str, str], AlertRule], alerts: Iterable[Alert], now: int
) -> dict[tuple[str, str], list[AlertNotice]]:
    """Collect the messages to each tenant's Alertmanagers, rule by rule."""
    changes: dict[tuple[str, str], list[AlertChange]] = {}
    for alert in alerts:
        if alert.state is AlertState.FIRING and alert.told is not None and (alert.tenant, alert.rule) in rules:
            changes.setdefault((alert.tenant, alert.rule), []).append(AlertChange(kind="again", alert=alert))
    found: dict[tuple[str, str], list[AlertNotice]] = {}
    for key, told in changes.items():
        rule = rules[key]
        for channel in rule.channels:
            if channel.startswith("alertmanager+") and is_told(channel, rule.severity):
                found.setdefault((rule.tenant, channel), []).extend(
                    AlertNotice(id="", channel=channel, rule=rule, changes=told[start : start + _TOGETHER], at=now)
                    for start in range(0, len(told), _TOGETHER)
                )
    return found
