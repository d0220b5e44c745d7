# Generated from taskmq/http/aio/history.py by `python -m tests.house.blocking_client`: change that one.
"""History: logs of jobs, metrics, failures and alerts."""

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
from taskmq.api.history.failure_groups import FailureGroupList, MuteBody, ResolveBody
from taskmq.api.history.figures import (
    DayUsageList,
    DayUsageView,
    FailureLane,
    FailureList,
    MetricList,
    RollupList,
)
from taskmq.api.history.logs import LineList
from taskmq.http._generated.connection import Calls
from taskmq.model.history.failure_groups import GroupState

_Answer = dict[str, Any]


class LogCalls(Calls):
    """Logs of job runs."""

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
        """Return log lines of a job, oldest first; continue with `cursor=page.next`, even after the last one."""
        query = {"level": level, "text": text, "attempt": attempt, "limit": limit, "cursor": cursor}
        return self._connection.ask("getJobLogs", LineList, path={"job_id": job_id}, query=query)

    def search(
        self,
        text: str = "",
        *,
        level: str = "debug",
        job_id: str | None = None,
        run_id: str | None = None,
        step: str = "",
        task: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Return log lines of jobs, newest first; with `run_id`, of the jobs of a run or of one step of it."""
        query = {
            "text": text,
            "level": level,
            "job_id": job_id,
            "run_id": run_id,
            "step": step or None,
            "task": task,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return self._connection.ask("searchLogs", LineList, query=query)


class FigureCalls(Calls):
    """Statistics and failures of runs."""

    def rollups(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("task", "queue"),
    ) -> RollupList:
        """Return counts, waiting times and run times of a period, by default the last hour."""
        query = {"since": since, "until": until, "task": task, "queue": queue, "by": ",".join(by)}
        return self._connection.ask("listRollups", RollupList, query=query)

    def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = ("tenant", "task", "queue"),
    ) -> Sequence[DayUsageView]:
        """Return counts, waiting, running and processor seconds of jobs by day, by default of the last seven days."""
        query = {"since": since, "until": until, "task": task, "queue": queue, "by": ",".join(by)}
        return (self._connection.ask("getUsage", DayUsageList, query=query)).items

    def over_time(
        self,
        *metrics: str,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int = 60,
        task: str | None = None,
        queue: str | None = None,
        by: Sequence[str] = (),
    ) -> MetricList:
        """Return time series, by default of the last hour, and the versions of the app; `step` in seconds."""
        query = {
            "metric": ",".join(metrics),
            "since": since,
            "until": until,
            "step": step,
            "task": task,
            "queue": queue,
            "by": ",".join(by),
        }
        return self._connection.ask("queryMetrics", MetricList, query=query)

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
        """Return failures, newest first: stored jobs, sent jobs, dead letters, workflows.

        Args:
            lane: only this lane: `store`, `broker` or `workflow`.
            job_id: only this sent job.
            traceback: include the ends of tracebacks.
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


class FailureGroupCalls(Calls):
    """Groups of failures by task and error."""

    def list(
        self, *, since: datetime | None = None, state: GroupState | None = None, limit: int = 200
    ) -> FailureGroupList:
        """List the groups with failures in a period, by default the last 24 hours, and those resolved or muted."""
        query = {"since": since, "state": state, "limit": limit}
        return self._connection.ask("listFailureGroups", FailureGroupList, query=query)

    def resolve(self, group_id: str, *, note: str = "") -> None:
        """Mark a group as resolved; the next failure opens it again."""
        self._change("resolveFailureGroup", group_id, ResolveBody(note=note))

    def mute(self, group_id: str, *, seconds: float | None = None, note: str = "") -> None:
        """Mute a group for this many seconds, by default without end."""
        self._change("muteFailureGroup", group_id, MuteBody(seconds=seconds, note=note))

    def reopen(self, group_id: str, *, note: str = "") -> None:
        """Open a resolved or muted group again."""
        self._change("reopenFailureGroup", group_id, ResolveBody(note=note))

    def _change(self, operation: str, group_id: str, body: ResolveBody | MuteBody) -> None:
        self._connection.ask(operation, _Answer, path={"group_id": group_id}, body=body)


class AlertCalls(Calls):
    """Alerts, alert rules and their channels."""

    def list(self, *states: str) -> AlertList:
        """Return alerts, active ones first; by default in all states."""
        query = {"states": ",".join(states) or None}
        return self._connection.ask("listAlerts", AlertList, query=query)

    def metrics(self) -> dict[str, str]:
        """Return the metrics available to rules, with descriptions."""
        return (self._connection.ask("listAlertMetrics", MetricsView)).items

    def rules(self) -> Sequence[RuleView]:
        """List the rules, ordered by name."""
        return (self._connection.ask("listAlertRules", RuleList)).items

    def put_rule(self, name: str, body: RuleBody, *, version: int | None = None) -> RuleView:
        """Create the rule, or replace the one with this name."""
        return self._connection.ask("putAlertRule", RuleView, path={"name": name}, body=body, version=version)

    def delete_rule(self, name: str) -> None:
        """Remove a rule and its alerts."""
        self._connection.ask("deleteAlertRule", _Answer, path={"name": name})

    def test_rule(self, name: str) -> Sequence[str]:
        """Send a test notice to the channels of a rule. Returns the channels."""
        return (self._connection.ask("testAlertRule", TestedView, path={"name": name})).channels

    def silences(self) -> Sequence[SilenceView]:
        """List the silences that have not expired."""
        return (self._connection.ask("listSilences", SilenceList)).items

    def silence(self, seconds: float, *, rule: str = "", subject: str = "", note: str = "") -> SilenceView:
        """Suppress the notices of matching alerts for this many seconds."""
        body = SilenceBody(seconds=seconds, rule=rule, subject=subject, note=note)
        return self._connection.ask("addSilence", SilenceView, body=body)

    def end_silence(self, silence_id: str) -> None:
        """End a silence early."""
        self._connection.ask("deleteSilence", _Answer, path={"silence_id": silence_id})

    def notices(self, *, limit: int = 50) -> Sequence[NoticeView]:
        """List notices, newest first."""
        return (self._connection.ask("listAlertNotices", NoticeList, query={"limit": limit})).items
