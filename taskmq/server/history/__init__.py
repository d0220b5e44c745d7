"""The history over HTTP: logs, figures, failures, alerts; by their names and by the API's original ones."""

from taskmq.server.history.alerts import ALERT_HANDLERS
from taskmq.server.history.failures import FAILURE_HANDLERS
from taskmq.server.history.figures import FIGURE_HANDLERS
from taskmq.server.history.logs import LOG_HANDLERS

__all__ = ["HISTORY_HANDLERS"]

HISTORY_HANDLERS = (*LOG_HANDLERS, *FIGURE_HANDLERS, *FAILURE_HANDLERS, *ALERT_HANDLERS)
