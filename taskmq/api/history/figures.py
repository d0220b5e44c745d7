"""Rollups, figures over time, and failures."""

from typing import Literal

import msgspec

__all__ = [
    "FailureLane",
    "FailureList",
    "FailureView",
    "MetricList",
    "MissingSource",
    "PointView",
    "RollupList",
    "RollupView",
    "SeriesView",
]


class PointView(msgspec.Struct, frozen=True):
    """A value at the beginning of its step; None where nothing happened that it could be of."""

    at: str | None
    value: float | None


class SeriesView(msgspec.Struct, frozen=True):
    """One line of a plot."""

    metric: str
    labels: dict[str, str]
    points: list[PointView]


class MetricList(msgspec.Struct, frozen=True):
    """What was asked for; `step` in seconds."""

    items: list[SeriesView]
    step: int


class RollupView(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted of a task, a queue and a tenant. Times are seconds.

    Attributes:
        outcomes: events of jobs by name, such as started, succeeded, retried, dead.
        wait_p50, wait_p95, wait_p99: from due to the first start. `run_...`: of runs that have ended.
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
    """What was counted from `since` to `until`, all of it together."""

    since: str | None
    until: str | None
    items: list[RollupView]


FailureLane = Literal["store", "broker", "workflow"]
"""The lane of a failure: submitted to the store, sent to the broker, or sent as a workflow."""


class MissingSource(msgspec.Struct, frozen=True):
    """A source that could not be asked for failures, or not to its end, and why."""

    source: Literal["jobs", "failures", "dead letters", "workflows"]
    why: str


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a workflow that has failed.

    Attributes:
        lane: `store` of a job that was submitted, `broker` of one that was sent, `workflow`.
        job_id: what the caller calls the job, or the workflow.
        name: of a workflow.
        at: when it ended; of a workflow, which does not know that, when it was sent; None where that is unknown.
        event: of the store the job's state; of what was sent `dead`, or `parked`: no worker knew what to do with its
            message.
        error: the type's name.
        message: what the error said, redacted; "" where workers keep it to themselves, or where too many failed.
        summary: both in one line of at most 200 characters.
        letter: the queue among whose dead letters it is; None where it is in none, or none could be looked at.
        remedy: what runs it again: `retry`, `replay`, `redrive`; "" where nothing is left that could.
        is_handled: whether it was retried since, or its dead letter was sent again or deleted; None: unknown.
        retried_as: the job that is its repetition.
        traceback: the end of its traceback, redacted; None unless it is asked for.
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
    """Failures, the last one first.

    Attributes:
        next: what to say as `cursor` for the next page.
        missing: whose failures may be missing.
    """

    items: list[FailureView]
    next: str | None
    missing: list[MissingSource]
