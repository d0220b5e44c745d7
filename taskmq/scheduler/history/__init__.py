"""History of runs: figures by the minute, failures, depths of queues, versions of workers, and their retention."""

from taskmq.scheduler.history.depths import DepthSampler
from taskmq.scheduler.history.listener import RunHistory
from taskmq.scheduler.history.retention import forget_old
from taskmq.scheduler.history.versions import VersionRecorder

__all__ = ["DepthSampler", "RunHistory", "VersionRecorder", "forget_old"]
