"""Alerts, alert rules and notification channels."""

from typing import Annotated, Literal

import msgspec

from taskmq.api.values import Note, ShortText
from taskmq.model.history.alerts import AlertMetric, AlertState, Severity

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Span = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class RuleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An alert rule. Durations are in seconds. `GET /alerts/metrics` lists the metrics.

    Attributes:
        task, queue: patterns such as `billing.*`; "" matches all.
        workflow: a pattern such as `nightly-*`, for metrics of runs; "" matches all.
        each: evaluate each task, queue or workflow separately.
        below: alert on values below the threshold instead of above.
        clear: the value at which the alert resolves; null for the threshold.
        at_least: the minimum number of jobs that ended in the window, for rates and durations, or of earlier runs,
            for `run_duration`.
        pending_for: how long the value must be beyond the threshold before the alert fires.
        clear_for: how long the value must be back before the alert resolves.
        repeat: the interval between repeated notices; 0 for none.
        channels: URLs of notification channels; docs/alerts.md lists the kinds.
        unless: names of other rules. While one of them fires, this rule sends no notices.
    """

    metric: AlertMetric
    threshold: float
    task: ShortText = ""
    queue: ShortText = ""
    workflow: ShortText = ""
    each: Literal["", "task", "queue", "workflow"] = ""
    below: bool = False
    clear: float | None = None
    at_least: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 1
    window: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 300.0
    pending_for: _Span = 0.0
    clear_for: _Span = 0.0
    repeat: Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)] = 14_400.0
    severity: Severity = "warning"
    channels: Annotated[list[ShortText], msgspec.Meta(max_length=20)] = []
    unless: Annotated[list[_Name], msgspec.Meta(max_length=20)] = []
    note: Note = ""
    is_enabled: bool = True


class SetupBody(RuleBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An alert rule with its name and channels."""

    name: _Name


class RuleView(RuleBody, frozen=True, kw_only=True):
    """An alert rule. `version` is the value for `If-Match`."""

    name: str
    tenant: str
    version: int


class RuleList(msgspec.Struct, frozen=True):
    """Alert rules, ordered by name."""

    items: list[RuleView]


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one rule for one subject.

    Attributes:
        subject: `task:NAME`, `queue:NAME`, `workflow:NAME`, or "" for all together.
        since: when the value crossed the threshold; for a resolved alert, when it came back.
        told_at: when the last notice of a firing alert was sent; null if never.
        is_silenced: whether its notices are suppressed at the moment.
    """

    tenant: str
    rule: str
    subject: str
    state: AlertState
    severity: Severity
    value: float
    since: str | None
    changed: str | None
    told_at: str | None
    is_silenced: bool


class AlertList(msgspec.Struct, frozen=True):
    """Alerts, active ones first. `firing` and `pending` count them."""

    items: list[AlertView]
    firing: int
    pending: int


class SilenceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The alerts to silence and the duration in seconds. `rule` and `subject` are patterns; "" matches all."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=365 * 86_400)]
    rule: ShortText = ""
    subject: ShortText = ""
    note: Note = ""


class SilenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A silence, which suppresses the notices of matching alerts."""

    id: str
    tenant: str
    rule: str
    subject: str
    begins: str | None
    ends: str | None
    by: str
    note: str


class SilenceList(msgspec.Struct, frozen=True):
    """Silences that have not expired."""

    items: list[SilenceView]


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    """A sent or pending notice.

    Attributes:
        changes: subjects and what happened to them: firing, again, resolved, test.
        state: `done` if it was sent, or abandoned after a day; otherwise `waiting`.
        tries: the number of delivery attempts started.
    """

    id: str
    at: str | None
    rule: str
    tenant: str
    channel: str
    changes: list[dict[str, str]]
    state: Literal["done", "waiting"]
    tries: int


class NoticeList(msgspec.Struct, frozen=True):
    """A list of notices, newest first."""

    items: list[NoticeView]


class MetricsView(msgspec.Struct, frozen=True):
    """The metrics available to rules, by name."""

    items: dict[str, str]


class TestedView(msgspec.Struct, frozen=True):
    """The channels that receive a test notice."""

    channels: list[str]
