"""What was counted: rollups, figures over time, failures of the broker lane."""

import msgspec

__all__ = [
    "FailureList",
    "FailureView",
    "MetricList",
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


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the broker lane that ended badly.

    Attributes:
        event: `dead`, or `parked`: no worker knew what to do with its message.
        message: what the error said, redacted; "" where workers keep it to themselves, or where too many failed.
        traceback: the end of its traceback, redacted; None unless it is asked for.
    """

    job_id: str
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
    traceback: str | None = None


class FailureList(msgspec.Struct, frozen=True):
    """Failures, the last one first; `next` is what to say as `cursor` for the next page."""

    items: list[FailureView]
    next: str | None
