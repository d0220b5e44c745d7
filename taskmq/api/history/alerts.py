"""Alerts, their rules and channels."""

from typing import Annotated, Literal

import msgspec

from taskmq.api.values import Note, ShortText
from taskmq.model.history.alerts import AlertMetric, AlertState, Severity

__all__ = [
    "AlertList",
    "AlertView",
    "MetricsView",
    "NoticeList",
    "NoticeView",
    "RuleBody",
    "RuleList",
    "RuleView",
    "SetupBody",
    "SilenceBody",
    "SilenceList",
    "SilenceView",
    "TestedView",
]

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Span = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class RuleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When there is to be an alert; spans are seconds. See `GET /alerts/metrics` for what a rule can look at.

    Attributes:
        task, queue: patterns such as `billing.*`; "" everything.
        each: whether each task or queue is looked at by itself.
        below: for figures below the threshold, not above.
        clear: where an alert ends; null: at the threshold.
        at_least: jobs that must have ended in the window for rates and times to say anything.
        pending_for: for so long the figure has to be beyond the threshold before the alert fires.
        clear_for: for so long it has to be back before the alert ends.
        repeat: after so long another notice is sent; 0: never.
        channels: URLs; which ones there are is in docs/alerts.md.
        unless: names of other rules: while one of them fires, no notice of this one is sent.
    """

    metric: AlertMetric
    threshold: float
    task: ShortText = ""
    queue: ShortText = ""
    each: Literal["", "task", "queue"] = ""
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
    """A rule and its channels, in one."""

    name: _Name


class RuleView(RuleBody, frozen=True, kw_only=True):
    """A rule as it is; `version` is what `If-Match` compares."""

    name: str
    tenant: str
    version: int


class RuleList(msgspec.Struct, frozen=True):
    """The rules of alerts, by name."""

    items: list[RuleView]


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a rule and one subject.

    Attributes:
        subject: `task:NAME`, `queue:NAME`, or "" for all together.
        since: since when the figure is beyond the threshold; of a resolved one, since when it is not.
        told_at: when a notice that it fires was last sent; null: never.
        is_silenced: no notices of it are sent now.
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
    """Alerts, those that go on first; `firing` and `pending` count them."""

    items: list[AlertView]
    firing: int
    pending: int


class SilenceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which alerts send no notices, and for how many seconds; patterns, "" every one."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=365 * 86_400)]
    rule: ShortText = ""
    subject: ShortText = ""
    note: Note = ""


class SilenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A silence: while it lasts, alerts that it fits send no notices."""

    id: str
    tenant: str
    rule: str
    subject: str
    begins: str | None
    ends: str | None
    by: str
    note: str


class SilenceList(msgspec.Struct, frozen=True):
    """The silences that have not ended."""

    items: list[SilenceView]


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that was sent, or is to be.

    Attributes:
        changes: what has happened to which subject: firing, again, resolved, test.
        state: `done`: it was sent, or given up after a day; or `waiting`.
        tries: how often sending it has begun.
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
    """Notices, the last one first."""

    items: list[NoticeView]


class MetricsView(msgspec.Struct, frozen=True):
    """What a rule can look at, by name."""

    items: dict[str, str]


class TestedView(msgspec.Struct, frozen=True):
    """The channels that get a test."""

    channels: list[str]
