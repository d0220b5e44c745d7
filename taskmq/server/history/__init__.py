"""Logs, metrics, failures and alerts over HTTP, under their own and the API's original names."""

from taskmq.server.history.alerts import ALERT_HANDLERS
from taskmq.server.history.failure_groups import FAILURE_GROUP_HANDLERS
from taskmq.server.history.failures import FAILURE_HANDLERS
from taskmq.server.history.figures import FIGURE_HANDLERS
from taskmq.server.history.logs import LOG_HANDLERS

__all__ = ["HISTORY_HANDLERS"]

HISTORY_HANDLERS = (
    *LOG_HANDLERS,
    *FIGURE_HANDLERS,
    *FAILURE_HANDLERS,
    *FAILURE_GROUP_HANDLERS,
    *ALERT_HANDLERS,
)
