"""taskmq: a RabbitMQ-native task queue and distributed job scheduler.

An app (`TaskMQ`) registers functions as tasks. Calling `send` on one makes a message, which is confirmed by
a broker before `send` returns; a worker process takes it, runs the function, makes the outcome durable (the
result, the retry's copy, the dead letter) and only then acknowledges. A crash anywhere can run a task again,
never lose it.

The names below load on first use, so that `import taskmq` costs next to nothing.
"""

# What `typing` has under this name; importing that would take longer than all the rest of `taskmq probe`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.context import Context
    from taskmq.dependencies import Depends
    from taskmq.errors import (
        AccessDenied,
        AppNotFound,
        BrokerBlocked,
        BrokerUnavailable,
        DuplicateTask,
        EncodeError,
        Ignore,
        InvalidArguments,
        InvalidOption,
        InvalidSetting,
        JobCancelled,
        PartlySent,
        PublishRejected,
        PublishUnknown,
        QueueMissing,
        Reject,
        ResultTimeout,
        Retry,
        RunSuperseded,
        SendError,
        Snooze,
        SoftTimeout,
        StateUnavailable,
        TaskFailed,
        TaskMQError,
        TaskTimeout,
        TooLarge,
        TopologyMismatch,
        Unroutable,
        UnsupportedFeature,
    )
    from taskmq.events import JobEvent, WorkerEvent
    from taskmq.execution import Execution
    from taskmq.job import Job
    from taskmq.listening import EventStream
    from taskmq.log_fields import JobFields, install_job_fields
    from taskmq.middleware import Middleware, Proceed, Sending
    from taskmq.progress import JobProgress
    from taskmq.retry import RetryPolicy
    from taskmq.states import JobState
    from taskmq.tasks import Task, task
    from taskmq.topology import WorkQueue
    from taskmq.waiting import WaitingJob

__all__ = [
    "AccessDenied",
    "AppNotFound",
    "BrokerBlocked",
    "BrokerUnavailable",
    "Context",
    "Depends",
    "DuplicateTask",
    "EncodeError",
    "EventStream",
    "Execution",
    "Ignore",
    "InvalidArguments",
    "InvalidOption",
    "InvalidSetting",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFields",
    "JobProgress",
    "JobState",
    "Middleware",
    "PartlySent",
    "Proceed",
    "PublishRejected",
    "PublishUnknown",
    "QueueMissing",
    "Reject",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "RunSuperseded",
    "SendError",
    "Sending",
    "Snooze",
    "SoftTimeout",
    "StateUnavailable",
    "Task",
    "TaskFailed",
    "TaskMQ",
    "TaskMQError",
    "TaskTimeout",
    "TooLarge",
    "TopologyMismatch",
    "Unroutable",
    "UnsupportedFeature",
    "WaitingJob",
    "WorkQueue",
    "WorkerEvent",
    "install_job_fields",
    "task",
]

_HOMES = {
    "Context": "context",
    "Depends": "dependencies",
    "EventStream": "listening",
    "Execution": "execution",
    "Job": "job",
    "JobEvent": "events",
    "JobFields": "log_fields",
    "JobProgress": "progress",
    "JobState": "states",
    "Middleware": "middleware",
    "Proceed": "middleware",
    "RetryPolicy": "retry",
    "Sending": "middleware",
    "Task": "tasks",
    "TaskMQ": "app",
    "WaitingJob": "waiting",
    "WorkQueue": "topology",
    "WorkerEvent": "events",
    "install_job_fields": "log_fields",
    "task": "tasks",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'taskmq' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"taskmq.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
