"""History of runs: figures by the minute, failures, depths of queues, and their retention."""

from taskmq.scheduler.history.depths import DepthSampler
from taskmq.scheduler.history.listener import RunHistory
from taskmq.scheduler.history.retention import forget_old

__all__ = ["DepthSampler", "RunHistory", "forget_old"]
