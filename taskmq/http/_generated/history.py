# Generated from taskmq/http/aio/history.py by `python -m tests.house.blocking_client`: change that one.
"""What happened and what is wrong: logs of jobs, figures, failures, alerts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskmq.api.history.alerts import (
    AlertList,
    MetricsView,
    NoticeList,
    NoticeView,
    RuleBody,
    RuleList,
    RuleView,
    SilenceBody,
    SilenceList,
    SilenceView,
    TestedView,
)
from taskmq.api.history.figures import FailureLane, FailureList, MetricList, RollupList, SeriesView
from taskmq.api.history.logs import LineList
from taskmq.http._generated.connection import HttpConnection

__all__ = ["AlertCalls", "FigureCalls", "LogCalls"]

_Answer = dict[str, Any]


class LogCalls:
    """What the runs of jobs have logged."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def of_job(
        self,
        job_id: str,
        *,
        level: str = "debug",
        text: str = "",
        attempt: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Lines of one job, the earliest first; go on with `cursor=page.next`, also after the last one."""
        query = {"level": level, "text": text, "attempt": attempt, "limit": limit, "cursor": cursor}
        return self._connection.ask("getJobLogs", LineList, path={"job_id": job_id}, query=query)

    def search(
        self,
        text: str = "",
        *,
        level: str = "debug",
        job_id: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Lines of jobs, the last ones first."""
        query = {
            "text": text,
            "level": level,
            "job_id": job_id,
            "task": task,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return self._connection.ask("searchLogs", LineList, query=query)


class FigureCalls:
    """What was counted of runs, and what has failed."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def rollups(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("task", "queue"),
    ) -> RollupList:
        """Counts, waits and run times of a time, by default of the last hour."""
        query = {"since": since, "until": until, "task": task, "queue": queue, "by": ",".join(by)}
        return self._connection.ask("listRollups", RollupList, query=query)

    def over_time(
        self,
        *metrics: str,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int = 60,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = (),
    ) -> Sequence[SeriesView]:
        """Figures over time, by default of the last hour; `step` in seconds."""
        query = {
            "metric": ",".join(metrics),
            "since": since,
            "until": until,
            "step": step,
            "task": task,
            "queue": queue,
            "by": ",".join(by),
        }
        return (self._connection.ask("queryMetrics", MetricList, query=query)).items

    def failures(
        self,
        *,
        lane: FailureLane | None = None,
        task: str | None = None,
        queue: str | None = None,
        job_id: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
        traceback: bool = False,
    ) -> FailureList:
        """What has failed, the last one first: jobs of the store, jobs that were sent, dead letters, workflows.

        Args:
            lane: those of one lane alone: `store`, `broker` or `workflow`.
            job_id: of one job that was sent.
            traceback: with the ends of their tracebacks.
        """
        query = {
            "lane": lane,
            "task": task,
            "queue": queue,
            "job_id": job_id,
            "error": error,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
            "traceback": traceback or None,
        }
        return self._connection.ask("listFailures", FailureList, query=query)


class AlertCalls:
    """What is wrong now, the rules that say so, and their channels."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def list(self, *states: str) -> AlertList:
        """Alerts, those that go on first; by default in all states."""
        query = {"states": ",".join(states) or None}
        return self._connection.ask("listAlerts", AlertList, query=query)

    def metrics(self) -> dict[str, str]:
        """What a rule can look at, and what each of it is."""
        return (self._connection.ask("listAlertMetrics", MetricsView)).items

    def rules(self) -> Sequence[RuleView]:
        """The rules, by name."""
        return (self._connection.ask("listAlertRules", RuleList)).items

    def put_rule(self, name: str, body: RuleBody, *, version: int | None = None) -> RuleView:
        """Make the rule, or replace the one of its name."""
        return self._connection.ask("putAlertRule", RuleView, path={"name": name}, body=body, version=version)

    def delete_rule(self, name: str) -> None:
        """Remove a rule and its alerts."""
        self._connection.ask("deleteAlertRule", _Answer, path={"name": name})

    def test_rule(self, name: str) -> Sequence[str]:
        """Send a test to the channels of a rule; returns the channels."""
        return (self._connection.ask("testAlertRule", TestedView, path={"name": name})).channels

    def silences(self) -> Sequence[SilenceView]:
        """The silences that have not ended."""
        return (self._connection.ask("listSilences", SilenceList)).items

    def silence(self, seconds: float, *, rule: str = "", subject: str = "", note: str = "") -> SilenceView:
        """Send no notices of the alerts that fit, for so many seconds."""
        body = SilenceBody(seconds=seconds, rule=rule, subject=subject, note=note)
        return self._connection.ask("addSilence", SilenceView, body=body)

    def end_silence(self, silence_id: str) -> None:
        """End a silence before its time."""
        self._connection.ask("deleteSilence", _Answer, path={"silence_id": silence_id})

    def notices(self, *, limit: int = 50) -> Sequence[NoticeView]:
        """Notices, the last one first."""
        return (self._connection.ask("listAlertNotices", NoticeList, query={"limit": limit})).items
