"""What the tasks of an app have in common: how they are sent, and where it is asked what became of them."""

from taskmq.client.job_service import JobService
from taskmq.client.producer import Producer
from taskmq.injection.resolve import Dependencies

__all__ = ["AppServices"]


class AppServices:
    """Given to a task when an app takes it."""

    __slots__ = ("dependencies", "jobs", "producer")

    def __init__(self, producer: Producer, jobs: JobService, dependencies: Dependencies) -> None:
        self.producer: Producer = producer
        self.jobs: JobService = jobs
        self.dependencies: Dependencies = dependencies
