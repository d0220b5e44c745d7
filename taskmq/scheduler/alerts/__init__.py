"""Alerts: one scheduler evaluates the rules, and all of them send notices."""

from taskmq.scheduler.alerts.notices import NoticeSender
from taskmq.scheduler.alerts.settings import AlertSettings
from taskmq.scheduler.alerts.watch import AlertWatch

__all__ = ["AlertSettings", "AlertWatch", "NoticeSender"]
