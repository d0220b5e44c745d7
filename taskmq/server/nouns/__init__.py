"""The other nouns of the command line over HTTP: each module one noun, each handler one call of `operations`."""

from taskmq.server.nouns.dead_letters import DEAD_LETTER_HANDLERS
from taskmq.server.nouns.definitions import DEFINITION_HANDLERS
from taskmq.server.nouns.pools import POOL_HANDLERS
from taskmq.server.nouns.queues import QUEUE_HANDLERS
from taskmq.server.nouns.schedules import SCHEDULE_HANDLERS
from taskmq.server.nouns.tasks import TASK_HANDLERS
from taskmq.server.nouns.workers import WORKER_HANDLERS
from taskmq.server.nouns.workflows import WORKFLOW_HANDLERS

__all__ = ["NOUN_HANDLERS"]

NOUN_HANDLERS = (
    *QUEUE_HANDLERS,
    *DEAD_LETTER_HANDLERS,
    *WORKER_HANDLERS,
    *SCHEDULE_HANDLERS,
    *WORKFLOW_HANDLERS,
    *TASK_HANDLERS,
    *DEFINITION_HANDLERS,
    *POOL_HANDLERS,
)
