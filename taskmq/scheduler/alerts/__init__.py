"""Alerts: one scheduler looks at the rules, and all of them notify people of what has changed."""

from taskmq.scheduler.alerts.notices import NoticeSender
from taskmq.scheduler.alerts.settings import AlertSettings
from taskmq.scheduler.alerts.watch import AlertWatch

__all__ = ["AlertSettings", "AlertWatch", "NoticeSender"]
