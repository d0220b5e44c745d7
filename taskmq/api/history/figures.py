"""Rollups, time series and failures."""

from typing import Literal

import msgspec


class PointView(msgspec.Struct, frozen=True):
    """A value at the start of its step; None if no data exists for the step."""

    at: str | None
    value: float | None


class SeriesView(msgspec.Struct, frozen=True):
    """A time series of one metric."""

    metric: str
    labels: dict[str, str]
    points: list[PointView]


class VersionMark(msgspec.Struct, frozen=True):
    """A version of the app, with the times at which workers first and last reported it, to within a minute."""

    version: str
    first: str | None
    last: str | None


class MetricList(msgspec.Struct, frozen=True):
    """The requested time series.

    Attributes:
        step: in seconds.
        versions: the versions of the app that workers ran in this time, by the time of their first report.
    """

    items: list[SeriesView]
    step: int
    versions: list[VersionMark]


class RollupView(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one task, queue and tenant. Durations are in seconds.

    Attributes:
        outcomes: the number of job events by name, such as started, succeeded, retried, dead.
        wait_p50, wait_p95, wait_p99: from the due time to the first start. `run_...`: of finished runs.
    """

    task: str
    queue: str
    tenant: str
    outcomes: dict[str, int]
    ended: int
    failed: int
    failure_rate: float | None
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None
    run_total: float


class RollupList(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics for the whole time from `since` to `until`."""

    since: str | None
    until: str | None
    items: list[RollupView]


class DayUsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that the jobs of one day used. Durations are sums in seconds.

    Attributes:
        day: in UTC, such as 2027-01-30.
        runs: attempts that ended.
        waiting_seconds: from the due times of jobs to their first starts.
        running_seconds: durations of ended runs.
        processor_seconds: processor time of runs in threads and processes; coroutines share a thread and are not
            measured.
    """

    day: str
    tenant: str
    task: str
    queue: str
    runs: int
    ended: int
    succeeded: int
    failed: int
    cancelled: int
    retried: int
    waiting_seconds: float
    running_seconds: float
    processor_seconds: float


class DayUsageList(msgspec.Struct, frozen=True):
    """Usage by day, the earliest first."""

    items: list[DayUsageView]


FailureLane = Literal["store", "broker", "workflow"]
"""Lane of a failed job: submitted to the store, sent to the broker, or sent as a workflow."""


class MissingSource(msgspec.Struct, frozen=True):
    """A source that could not be searched for failures, or not completely, and the reason."""

    source: Literal["jobs", "failures", "dead letters", "workflows"]
    why: str


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job or workflow.

    Attributes:
        lane: `store` for a submitted job, `broker` for a sent one, or `workflow`.
        job_id: the caller's id of the job or workflow.
        name: the workflow's name.
        at: when the job ended, or when the workflow was sent; None if unknown.
        event: the state of a stored job. For a sent job `dead`, or `parked` if no worker understood its message.
        error: the error's type.
        message: the redacted error message; "" if workers do not report it, or too many jobs failed.
        summary: type and message in one line of at most 200 characters.
        letter: the queue whose dead letters contain the job; None if there is none, or they could not be read.
        remedy: the action that runs it again: `retry`, `replay`, `redrive`; "" if none is possible.
        is_handled: whether it was retried, or its dead letter was replayed or deleted; None if unknown.
        retried_as: the id of the job that repeats it.
        traceback: the end of the redacted traceback; None unless requested.
    """

    lane: FailureLane
    job_id: str
    name: str
    at: str | None
    event: str
    task: str
    queue: str
    tenant: str
    worker: str
    attempt: int
    seconds: float | None
    error: str
    reason: str
    message: str = ""
    summary: str = ""
    letter: str | None = None
    remedy: Literal["", "retry", "replay", "redrive"] = ""
    is_handled: bool | None = None
    retried_as: str = ""
    traceback: str | None = None


class FailureList(msgspec.Struct, frozen=True):
    """A page of failures, newest first.

    Attributes:
        next: the `cursor` of the next page.
        missing: sources whose failures may be missing.
    """

    items: list[FailureView]
    next: str | None
    missing: list[MissingSource]
