"""Sends one notice like a scheduler."""

from typing import Any, cast

from taskmq.contracts.history import AlertNotice, AlertStore, NoticeTurn
from taskmq.scheduler.alerts import AlertSettings, NoticeSender


class _OneNotice:
    """A store that returns one notice and stops its sender once that is settled."""

    def __init__(self, alerts: AlertStore, settings: AlertSettings, *, longest: float) -> None:
        self._alerts = alerts
        self.sender = NoticeSender(cast("AlertStore", self), settings, longest=longest)
        self.was_taken = False

    async def take_notice(self, *, lease_ms: int, turn: NoticeTurn) -> AlertNotice | None:
        if self.was_taken:
            return None
        notice = await self._alerts.take_notice(lease_ms=lease_ms, turn=turn)
        self.was_taken = notice is not None
        if notice is None:
            self.sender.stop()
        return notice

    async def settle_notice(self, notice: AlertNotice, **how: Any) -> None:
        await self._alerts.settle_notice(notice, **how)
        self.sender.stop()


async def send_next(alerts: AlertStore, settings: AlertSettings, *, longest: float = 45.0) -> bool:
    """Send the first due notice; return whether there was one."""
    one = _OneNotice(alerts, settings, longest=longest)
    await one.sender.run()
    return one.was_taken
