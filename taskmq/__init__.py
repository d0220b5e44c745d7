"""taskmq: a RabbitMQ-native task queue and distributed job scheduler.

An app (`TaskMQ`) registers functions as tasks. Calling `send` on one makes a message, which is confirmed by
a broker before `send` returns; a worker process takes it, runs the function, makes the outcome durable (the
result, the retry's copy, the dead letter) and only then acknowledges. A crash anywhere can run a task again,
never lose it.

The names below load on first use, so that `import taskmq` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.context import Context
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
        SendError,
        Snooze,
        StateUnavailable,
        TaskFailed,
        TaskMQError,
        TaskTimeout,
        TooLarge,
        TopologyMismatch,
        Unroutable,
        UnsupportedFeature,
    )
    from taskmq.execution import Execution
    from taskmq.job import Job
    from taskmq.middleware import Middleware, Proceed, Sending
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
    "DuplicateTask",
    "EncodeError",
    "Execution",
    "Ignore",
    "InvalidArguments",
    "InvalidOption",
    "InvalidSetting",
    "Job",
    "JobCancelled",
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
    "SendError",
    "Sending",
    "Snooze",
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
    "task",
]

_HOMES = {
    "Context": "context",
    "Execution": "execution",
    "Job": "job",
    "JobState": "states",
    "Middleware": "middleware",
    "Proceed": "middleware",
    "RetryPolicy": "retry",
    "Sending": "middleware",
    "Task": "tasks",
    "TaskMQ": "app",
    "WaitingJob": "waiting",
    "WorkQueue": "topology",
    "task": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'taskmq' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"taskmq.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
