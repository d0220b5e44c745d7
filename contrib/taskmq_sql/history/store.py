"""Run history of a database: logs, metrics, sent jobs and alerts."""

from taskmq_sql.history.alerts import SqlAlerts
from taskmq_sql.history.depths import SqlDepths
from taskmq_sql.history.logs import SqlLogs
from taskmq_sql.history.rollups import SqlRollups
from taskmq_sql.history.sent_jobs import SqlSentJobs
from taskmq_sql.history.versions import SqlVersions
from taskmq_sql.steps import Runner

__all__ = ["SqlHistory"]


class SqlHistory:
    """A `HistoryStore` in the database's tables."""

    def __init__(self, runner: Runner) -> None:
        self.logs = SqlLogs(runner)
        self.rollups = SqlRollups(runner)
        self.depths = SqlDepths(runner)
        self.versions = SqlVersions(runner)
        self.sent_jobs = SqlSentJobs(runner)
        self.alerts = SqlAlerts(runner)
