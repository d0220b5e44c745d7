"""Repetition of ongoing alerts to Alertmanagers each minute, because they end alerts that are not repeated.

Nothing is stored: a failed repetition is covered by the next one, from the scheduler that then evaluates the rules.
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

_log = logging.getLogger("taskmq.scheduler")

_PERIOD_MS: Final = 60_000
# Evaluation of rules continues after this time; a slower Alertmanager gets the next repetition.
_TIMEOUT: Final = 10.0
# Alerts per request, so that dispatching on the same loop is not delayed.
_TOGETHER: Final = 200
_OF_TENANT: Final = 2


class AlertRepetition:
    """Repetition of firing alerts, independent of the `repeat` of their rules; unannounced ones are left out."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._repeated = 0

    async def repeat(self, rules: Iterable[AlertRule], alerts: Iterable[Alert], *, now: int) -> None:
        """Send the ongoing alerts, once a minute.

        Args:
            now: ms since the epoch.
        """
        if now - self._repeated < _PERIOD_MS:
            return
        channels = _by_channel({(rule.tenant, rule.name): rule for rule in rules}, alerts, now)
        if channels:
            self._repeated = now
            # Limits the connections of a tenant that names many Alertmanagers.
            rooms = {tenant: asyncio.Semaphore(_OF_TENANT) for tenant, _ in channels}
            await asyncio.gather(
                *(self._send(channel, notices, rooms[tenant]) for (tenant, channel), notices in channels.items())
            )

    async def _send(self, channel: str, notices: list[AlertNotice], room: asyncio.Semaphore) -> None:
        url = f"{parse_channel(channel).target.rstrip('/')}/api/v2/alerts"
        try:
            async with asyncio.timeout(_TIMEOUT), room:
                for notice in notices:
                    body = alertmanager_body(notice)
                    await post(url, body, headers={}, allows_private=self._settings.allows_private)
        except TimeoutError:
            _log.warning("repeating alerts over %s failed: no answer within %g s", shown_channel(channel), _TIMEOUT)
        except (DeliveryFailed, InvalidOption) as error:
            _log.warning("repeating alerts over %s failed: %s", shown_channel(channel), error)


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
