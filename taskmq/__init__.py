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
    from taskmq.client.delayed import WaitingJob
    from taskmq.client.progress import JobProgress
    from taskmq.contracts.jobs.replicas import accept_age
    from taskmq.errors import (
        AccessDenied,
        AppNotFound,
        BrokerBlocked,
        BrokerUnavailable,
        DuplicateJob,
        DuplicateTask,
        EncodeError,
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
        QuotaExceeded,
        Reject,
        ResultDamaged,
        ResultExpired,
        ResultTimeout,
        Retry,
        RunClosed,
        RunFailed,
        RunNotFound,
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
        WorkflowNotFound,
    )
    from taskmq.events.stream import EventStream
    from taskmq.injection.plan import Depends
    from taskmq.jobs.handle import AsCompleted, Job, as_completed
    from taskmq.jobs.outcome import JobOutcome
    from taskmq.jobs.watch import EndNews, ProgressNews, StateNews, sse_text
    from taskmq.middleware.chain import Middleware, Proceed, Sending
    from taskmq.model.jobs.filters import JobFilter
    from taskmq.model.retry import RetryPolicy
    from taskmq.model.states import Cancellation, JobState
    from taskmq.model.telemetry.events import JobEvent, WorkerEvent
    from taskmq.model.topology import WorkQueue
    from taskmq.options.limits import Concurrency, RateLimit
    from taskmq.run.console_log import LineFormatter
    from taskmq.run.context import Context
    from taskmq.run.execution import Execution
    from taskmq.run.locks import Lock
    from taskmq.run.log_fields import JobFields, install_job_fields
    from taskmq.run.member import Member
    from taskmq.tasks.definition import task
    from taskmq.tasks.task import Task
    from taskmq.workflow.batch import batch
    from taskmq.workflow.dag import dag
    from taskmq.workflow.named_workflow import NamedWorkflow
    from taskmq.workflow.parts import Workflow, chain, chord, group
    from taskmq.workflow.runs.handle import Run
    from taskmq.workflow.runs.snapshots import EndedStep, RunStatus, RunStep
    from taskmq.workflow.taskless_step import sleep, subworkflow, wait

__all__ = [
    "AccessDenied",
    "AppNotFound",
    "AsCompleted",
    "BrokerBlocked",
    "BrokerUnavailable",
    "Cancellation",
    "Concurrency",
    "Context",
    "Depends",
    "DuplicateJob",
    "DuplicateTask",
    "EncodeError",
    "EndNews",
    "EndedStep",
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
    "JobFilter",
    "JobOutcome",
    "JobProgress",
    "JobState",
    "LineFormatter",
    "Lock",
    "LockLost",
    "LockTimeout",
    "Member",
    "Middleware",
    "NamedWorkflow",
    "PartlySent",
    "Proceed",
    "ProgressNews",
    "PublishRejected",
    "PublishUnknown",
    "QueueMissing",
    "QuotaExceeded",
    "RateLimit",
    "Reject",
    "ResultDamaged",
    "ResultExpired",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunClosed",
    "RunFailed",
    "RunNotFound",
    "RunStatus",
    "RunStep",
    "RunSuperseded",
    "SendError",
    "Sending",
    "Snooze",
    "SoftTimeout",
    "StateNews",
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
    "Workflow",
    "WorkflowNotFound",
    "accept_age",
    "as_completed",
    "batch",
    "chain",
    "chord",
    "dag",
    "group",
    "install_job_fields",
    "sleep",
    "sse_text",
    "subworkflow",
    "task",
    "wait",
]

_HOMES = {
    "accept_age": "contracts.jobs.replicas",
    "AsCompleted": "jobs.handle",
    "Concurrency": "options.limits",
    "Context": "run.context",
    "Depends": "injection.plan",
    "EventStream": "events.stream",
    "Execution": "run.execution",
    "EndedStep": "workflow.runs.snapshots",
    "Run": "workflow.runs.handle",
    "RunStatus": "workflow.runs.snapshots",
    "RunStep": "workflow.runs.snapshots",
    "Job": "jobs.handle",
    "JobEvent": "model.telemetry.events",
    "JobFields": "run.log_fields",
    "JobFilter": "model.jobs.filters",
    "JobOutcome": "jobs.outcome",
    "EndNews": "jobs.watch",
    "ProgressNews": "jobs.watch",
    "StateNews": "jobs.watch",
    "sse_text": "jobs.watch",
    "JobProgress": "client.progress",
    "Cancellation": "model.states",
    "JobState": "model.states",
    "LineFormatter": "run.console_log",
    "Lock": "run.locks",
    "Member": "run.member",
    "Middleware": "middleware.chain",
    "Proceed": "middleware.chain",
    "RateLimit": "options.limits",
    "RetryPolicy": "model.retry",
    "Sending": "middleware.chain",
    "Task": "tasks.task",
    "TaskMQ": "app",
    "WaitingJob": "client.delayed",
    "WorkQueue": "model.topology",
    "WorkerEvent": "model.telemetry.events",
    "Workflow": "workflow.parts",
    "as_completed": "jobs.handle",
    "chain": "workflow.parts",
    "chord": "workflow.parts",
    "batch": "workflow.batch",
    "dag": "workflow.dag",
    "group": "workflow.parts",
    "install_job_fields": "run.log_fields",
    "NamedWorkflow": "workflow.named_workflow",
    "sleep": "workflow.taskless_step",
    "subworkflow": "workflow.taskless_step",
    "task": "tasks.definition",
    "wait": "workflow.taskless_step",
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
