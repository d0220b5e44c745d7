"""Names of attributes. OpenTelemetry's for messaging are not stable yet, so they stand in one place."""

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
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE: Final = "messaging.message.id"
CONVERSATION: Final = "messaging.message.conversation_id"
ERROR: Final = "error.type"

TASK: Final = "taskmq.task.name"
ATTEMPT: Final = "taskmq.attempt"
MAX_ATTEMPTS: Final = "taskmq.max_attempts"
PRIORITY: Final = "taskmq.job.priority"
TENANT: Final = "taskmq.tenant"
REDELIVERED: Final = "taskmq.redelivered"
WAITED: Final = "taskmq.queue_delay_ms"
OUTCOME: Final = "taskmq.model.outcome"
