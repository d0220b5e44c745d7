"""Names of span attributes, and the spans that have them. OpenTelemetry's names for messaging are not stable yet."""

from typing import Final

__all__ = [
    "ATTEMPT",
    "CONVERSATION",
    "DESTINATION",
    "ERROR",
    "MAX_ATTEMPTS",
    "MESSAGE",
    "OPERATION",
    "OPERATION_TYPE",
    "OUTCOME",
    "PRIORITY",
    "REDELIVERED",
    "SYSTEM",
    "TASK",
    "TENANT",
    "WAITED",
]

SYSTEM: Final = "messaging.system"
"""both: `rabbitmq`, or the `system` of `Tracing`."""
OPERATION: Final = "messaging.operation.name"
"""both: `publish` or `process`."""
OPERATION_TYPE: Final = "messaging.operation.type"
"""both: `send` or `process`."""
DESTINATION: Final = "messaging.destination.name"
"""both: the queue's logical name."""
MESSAGE: Final = "messaging.message.id"
"""both: the job's id."""
CONVERSATION: Final = "messaging.message.conversation_id"
"""both: the id of the root job, or the job's own."""
ERROR: Final = "error.type"
"""both, if the call or the run failed: the name of the error's type."""

TASK: Final = "taskmq.task.name"
"""both: the task's name."""
ATTEMPT: Final = "taskmq.attempt"
"""process: the number of the attempt, from 1."""
MAX_ATTEMPTS: Final = "taskmq.max_attempts"
"""process: the maximum number of attempts."""
PRIORITY: Final = "taskmq.job.priority"
"""both, if the call has one: its priority."""
TENANT: Final = "taskmq.tenant"
"""both, if the job has one: its tenant."""
REDELIVERED: Final = "taskmq.redelivered"
"""process: whether another worker may have had the message before."""
WAITED: Final = "taskmq.queue_delay_ms"
"""process: milliseconds from the call to the run."""
OUTCOME: Final = "taskmq.outcome"
"""process: `succeeded`, `failed`, `retried`, `snoozed`, `rejected`, `ignored` or `interrupted`."""
