"""What a worker process tells about itself; the values are those of `taskmq.presence`."""

from taskmq.presence import RunningJob, WorkerStatus

__all__ = ["RunningJob", "WorkerStatus"]
