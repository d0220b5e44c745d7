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
        DuplicateJob,
        DuplicateTask,
        EncodeError,
        FlowFailed,
        FlowNotFound,
        Ignore,
        InvalidArguments,
        InvalidOption,
        InvalidSetting,
        JobCancelled,
        LockLost,
        LockTimeout,
        PartlySent,
        PublishRejected,
        PublishUnknown,
        QueueMissing,
        Reject,
        ResultDamaged,
        ResultExpired,
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
    from taskmq.finishing import Finishing
    from taskmq.job import Job, JobOutcome
    from taskmq.limits import Concurrency, RateLimit
    from taskmq.listening import EventStream
    from taskmq.locks import Lock
    from taskmq.log_fields import JobFields, install_job_fields
    from taskmq.middleware import Middleware, Proceed, Sending
    from taskmq.progress import JobProgress
    from taskmq.retry import RetryPolicy
    from taskmq.states import JobState
    from taskmq.tasks import Task, task
    from taskmq.topology import WorkQueue
    from taskmq.waiting import WaitingJob
    from taskmq.workflow.dag import dag
    from taskmq.workflow.flow import Flow, FlowState, StepOutcome
    from taskmq.workflow.parts import Workflow, chain, chord, group

__all__ = [
    "AccessDenied",
    "AppNotFound",
    "BrokerBlocked",
    "BrokerUnavailable",
    "Concurrency",
    "Context",
    "Depends",
    "DuplicateJob",
    "DuplicateTask",
    "EncodeError",
    "EventStream",
    "Execution",
    "Finishing",
    "Flow",
    "FlowFailed",
    "FlowNotFound",
    "FlowState",
    "Ignore",
    "InvalidArguments",
    "InvalidOption",
    "InvalidSetting",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFields",
    "JobOutcome",
    "JobProgress",
    "JobState",
    "Lock",
    "LockLost",
    "LockTimeout",
    "Middleware",
    "PartlySent",
    "Proceed",
    "PublishRejected",
    "PublishUnknown",
    "QueueMissing",
    "RateLimit",
    "Reject",
    "ResultDamaged",
    "ResultExpired",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "RunSuperseded",
    "SendError",
    "Sending",
    "Snooze",
    "SoftTimeout",
    "StateUnavailable",
    "StepOutcome",
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
    "Workflow",
    "chain",
    "chord",
    "dag",
    "group",
    "install_job_fields",
    "task",
]

_HOMES = {
    "Concurrency": "limits",
    "Context": "context",
    "Depends": "dependencies",
    "EventStream": "listening",
    "Execution": "execution",
    "Finishing": "finishing",
    "Flow": "workflow.flow",
    "FlowState": "workflow.flow",
    "Job": "job",
    "JobEvent": "events",
    "JobFields": "log_fields",
    "JobOutcome": "job",
    "JobProgress": "progress",
    "JobState": "states",
    "Lock": "locks",
    "Middleware": "middleware",
    "Proceed": "middleware",
    "RateLimit": "limits",
    "RetryPolicy": "retry",
    "Sending": "middleware",
    "StepOutcome": "workflow.flow",
    "Task": "tasks",
    "TaskMQ": "app",
    "WaitingJob": "waiting",
    "WorkQueue": "topology",
    "WorkerEvent": "events",
    "Workflow": "workflow.parts",
    "chain": "workflow.parts",
    "chord": "workflow.parts",
    "dag": "workflow.dag",
    "group": "workflow.parts",
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
