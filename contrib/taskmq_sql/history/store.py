"""Run history of a database: logs, metrics and alerts."""

from taskmq_sql.history.alerts import SqlAlerts
from taskmq_sql.history.logs import SqlLogs
from taskmq_sql.history.rollups import SqlRollups
from taskmq_sql.steps import Runner

__all__ = ["SqlHistory"]


class SqlHistory:
    """A `HistoryStore` in the database's tables."""

    def __init__(self, runner: Runner) -> None:
        self._logs = SqlLogs(runner)
        self._rollups = SqlRollups(runner)
        self._alerts = SqlAlerts(runner)

    @property
    def logs(self) -> SqlLogs:
        return self._logs

    @property
    def rollups(self) -> SqlRollups:
        return self._rollups

    @property
    def alerts(self) -> SqlAlerts:
        return self._alerts
