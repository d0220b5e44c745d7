"""Run history of a database: logs, metrics, sent jobs and alerts."""

from taskmq_sql.history.alerts import SqlAlerts
from taskmq_sql.history.depths import SqlDepths
from taskmq_sql.history.failures import SqlFailures
from taskmq_sql.history.logs import SqlLogs
from taskmq_sql.history.rollups import SqlRollups
from taskmq_sql.history.sent_jobs import SqlSentJobs
from taskmq_sql.history.versions import SqlVersions
from taskmq_sql.steps import Runner


class SqlHistory:
    """A `HistoryStore` in the database's tables.

    Args:
        message: column of ended jobs with the message of their errors.
    """

    def __init__(self, runner: Runner, *, message: str) -> None:
        self.logs = SqlLogs(runner)
        self.rollups = SqlRollups(runner)
        self.depths = SqlDepths(runner)
        self.versions = SqlVersions(runner)
        self.sent_jobs = SqlSentJobs(runner)
        self.failures = SqlFailures(runner, message=message)
        self.alerts = SqlAlerts(runner)
