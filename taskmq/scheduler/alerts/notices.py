"""Delivery of alert notices: every scheduler leases notices from the store, a few at a time.

take, under a lease of a minute -> send -> settled
                                          | not accepted: retried for a day, with growing pauses
                                          | can never be accepted: given up
    killed in between: sent again by another scheduler, with the same id, so that a receiver can recognize it
"""

import asyncio
import logging
import time
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.history import AlertNotice, AlertStore
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import InvalidOption, StoreUnavailable
from taskmq.model.history.channels import parse_channel, shown_channel
from taskmq.model.units import DAY_MS
from taskmq.scheduler.alerts.http import DeliveryFailed, post
from taskmq.scheduler.alerts.messages import ALERTMANAGER_MS, signature
from taskmq.scheduler.alerts.receivers import posts_of
from taskmq.scheduler.alerts.settings import AlertSettings
from taskmq.scheduler.alerts.turns import NoticeTurns

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 2.0
_AT_ONCE: Final = 8
_LEASE_MS: Final = 60_000
# Well within the lease, so that no other scheduler sends it as well.
_LONGEST: Final = 45.0
_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 600_000
_GIVEN_UP_MS: Final = DAY_MS


class NoticeSender:
    """A service that sends the notices that are due.

    Args:
        longest: most seconds for one notice.
    """

    def __init__(self, alerts: AlertStore, settings: AlertSettings, *, longest: float = _LONGEST) -> None:
        self._alerts = alerts
        self._settings = settings
        self._longest = longest
        self._turns = NoticeTurns()
        self._sending = TaskSet("notifies people of alerts", failure="sending a notice failed, will retry")
        self._is_stopping = asyncio.Event()
        self._waking = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._waking.set()

    async def run(self) -> None:
        """Send due notices until `stop`."""
        try:
            while not self._is_stopping.is_set():
                self._waking.clear()
                if len(self._sending) < _AT_ONCE and (notice := await self._next()) is not None:
                    self._begin(notice)
                else:
                    await pause(self._waking, _PERIOD)
            await self._sending.aclose(grace=self._longest)
        finally:
            await self._sending.aclose()

    def _begin(self, notice: AlertNotice) -> None:
        now = asyncio.get_running_loop().time
        self._turns.begin(notice, now())

        def end(_: asyncio.Task[None]) -> None:
            self._turns.end(notice, now())
            self._waking.set()

        self._sending.start(self._deliver(notice)).add_done_callback(end)

    async def _next(self) -> AlertNotice | None:
        turn = self._turns.turn(asyncio.get_running_loop().time())
        try:
            return await self._alerts.take_notice(lease_ms=_LEASE_MS, turn=turn)
        except StoreUnavailable as error:
            _log.warning("store unavailable, alert notices wait: %s", error)
            return None

    async def _deliver(self, notice: AlertNotice) -> None:
        assert notice.next is not None
        now = notice.next - _LEASE_MS
        retry_at: int | None = None
        try:
            async with asyncio.timeout(self._longest):
                await self._send(notice, now)
        except Exception as error:  # noqa: BLE001 - one notice must not hold up the others
            channel = shown_channel(notice.channel)
            if _is_final(error) or now - notice.at > _GIVEN_UP_MS:
                _log.error("rule %s: giving up the notice over %s: %s", notice.rule.name, channel, self._why(error))
            else:
                _log.warning(
                    "rule %s: notice over %s failed, will retry: %s", notice.rule.name, channel, self._why(error)
                )
                retry_at = now + min(_FIRST_PAUSE_MS << min(notice.tries - 1, 10), _LONGEST_PAUSE_MS)
        try:
            await self._alerts.settle_notice(notice, retry_at=retry_at)
        except StoreUnavailable as error:
            _log.warning("rule %s: store unavailable, sending again in a minute: %s", notice.rule.name, error)

    def _why(self, error: Exception) -> str:
        """Return a loggable reason. Errors from other libraries may contain secrets."""
        if isinstance(error, TimeoutError):
            return f"not accepted within {self._longest:g} s"
        return str(error) if isinstance(error, DeliveryFailed) else type(error).__name__

    async def _send(self, notice: AlertNotice, now: int) -> None:
        channel = parse_channel(notice.channel)
        settings = self._settings
        if channel.kind == "mail":
            if settings.mail is None:
                raise DeliveryFailed("cannot send mail: set TASKMQ_SMTP_URL for the scheduler")
            from taskmq.scheduler.alerts.mail import mail_of, send_mail

            await asyncio.to_thread(send_mail, settings.mail, mail_of(notice, channel.target, settings.sender))
            return
        if channel.kind == "alertmanager" and now - notice.at >= ALERTMANAGER_MS:
            # Ongoing alerts are repeated anyway; such a late message would end them there.
            notice = replace(notice, changes=[one for one in notice.changes if one.kind == "resolved"])
            if not notice.changes:
                return
        for url, body in posts_of(notice, channel):
            headers = {"Taskmq-Notice": notice.id}
            if channel.kind == "webhook" and settings.secret:
                headers["Taskmq-Signature"] = signature(settings.secret, body, at=int(time.time()))
            await post(url, body, headers=headers, allows_private=settings.allows_private)


def _is_final(error: Exception) -> bool:
    """Whether retrying is useless, because the notice itself cannot be sent."""
    return error.is_final if isinstance(error, DeliveryFailed) else isinstance(error, (ValueError, InvalidOption))
