"""Tells people what is to be told: every scheduler takes notices from the store, each of them one at a time.

take, nobody else's for a minute -> send -> settled
                                          | not taken: again, later each time, for a day
    killed in between: taken again by whoever is there, with the same id, by which a receiver can tell
"""

import asyncio
import logging
import time
from typing import Final

from taskmq.contracts.history import AlertNotice, AlertStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.history.channels import parse_channel
from taskmq.scheduler.alerts.http import DeliveryFailed, post
from taskmq.scheduler.alerts.mail import send_mail
from taskmq.scheduler.alerts.messages import alertmanager_body, mail_of, signature, webhook_body
from taskmq.scheduler.alerts.settings import AlertSettings

__all__ = ["NoticeSender"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 2.0
_LEASE_MS: Final = 60_000
_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 600_000
_GIVEN_UP_MS: Final = 86_400_000


class NoticeSender:
    """Sends what is due: a `Service`."""

    def __init__(self, alerts: AlertStore, settings: AlertSettings) -> None:
        self._alerts = alerts
        self._settings = settings
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Send until `stop`."""
        while not self._is_stopping.is_set():
            try:
                has_sent = await self.send_next()
            except StoreUnavailable as error:
                _log.warning("alerts are not told for now: %s", error)
                has_sent = False
            if not has_sent:
                await pause(self._is_stopping, _LOOK)

    async def send_next(self) -> bool:
        """Send the first notice that is due; whether there was one.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        notice = await self._alerts.take_notice(lease_ms=_LEASE_MS)
        if notice is None:
            return False
        assert notice.next is not None
        now = notice.next - _LEASE_MS
        retry_at: int | None = None
        try:
            await self._send(notice)
        except DeliveryFailed as error:
            if error.is_final or now - notice.at > _GIVEN_UP_MS:
                _log.error("rule %s: nobody was told over %s: %s", notice.rule.name, _shown(notice), error)
            else:
                _log.warning("rule %s: not told over %s yet: %s", notice.rule.name, _shown(notice), error)
                retry_at = now + min(_FIRST_PAUSE_MS << min(notice.tries - 1, 10), _LONGEST_PAUSE_MS)
        await self._alerts.settle_notice(notice, retry_at=retry_at)
        return True

    async def _send(self, notice: AlertNotice) -> None:
        channel = parse_channel(notice.channel)
        settings = self._settings
        if channel.kind == "mail":
            if settings.mail is None:
                raise DeliveryFailed("no mail is sent: set TASKMQ_SMTP_URL for the scheduler")
            await asyncio.to_thread(send_mail, settings.mail, mail_of(notice, channel.target, settings.sender))
            return
        headers = {"Taskmq-Notice": notice.id}
        if channel.kind == "webhook":
            url, body = channel.target, webhook_body(notice)
            if settings.secret:
                headers["Taskmq-Signature"] = signature(settings.secret, body, at=int(time.time()))
        else:
            url, body = f"{channel.target.rstrip('/')}/api/v2/alerts", alertmanager_body(notice)
        await post(url, body, headers=headers, allows_private=settings.allows_private)


def _shown(notice: AlertNotice) -> str:
    """The channel without what may be a secret: the paths of webhooks often are."""
    scheme, separator, rest = notice.channel.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}" if separator else notice.channel
