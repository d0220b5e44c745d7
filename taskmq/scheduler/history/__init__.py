"""What a scheduler writes down about runs: figures by the minute, failures; and when that is forgotten."""

from taskmq.scheduler.history.listener import RunHistory
from taskmq.scheduler.history.retention import forget_old

__all__ = ["RunHistory", "forget_old"]
