"""History of runs: figures by the minute, failures, and their retention."""

from taskmq.scheduler.history.listener import RunHistory
from taskmq.scheduler.history.retention import forget_old

__all__ = ["RunHistory", "forget_old"]
