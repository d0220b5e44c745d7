"""Jobs over HTTP: submission, search and changes; and their tasks and definitions."""

from taskmq.server.jobs.actions import ACTIONS
from taskmq.server.jobs.bulk import BULK
from taskmq.server.jobs.bulk_operations import BULK_OPERATIONS
from taskmq.server.jobs.changes import CHANGES
from taskmq.server.jobs.compatible_calls import COMPATIBLE_CALLS
from taskmq.server.jobs.definitions import DEFINITIONS
from taskmq.server.jobs.queries import QUERIES
from taskmq.server.jobs.submissions import SUBMISSIONS
from taskmq.server.jobs.tasks import TASKS

__all__ = ["JOB_HANDLERS"]

JOB_HANDLERS = (
    *SUBMISSIONS,
    *QUERIES,
    *CHANGES,
    *ACTIONS,
    *BULK,
    *BULK_OPERATIONS,
    *COMPATIBLE_CALLS,
    *TASKS,
    *DEFINITIONS,
)
