"""When there is an alert, and when there is none any more. Pure.

    rule + samples + what is known of its alerts -> what is known now, and which changes are sent

One rule looks at one figure, for each subject by itself (a task, a queue, or all of them). An alert is *pending* once
the figure is beyond the threshold, *firing* when it has been so for long enough, and *resolved* once it is back
where the rule lets go. A pending one that is back goes without a word.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec

from taskmq.errors import InvalidOption, LimitReached

__all__ = [
    "METRICS",
    "PER_QUEUE",
    "Alert",
    "AlertChange",
    "AlertMetric",
    "AlertRule",
    "AlertState",
    "Evaluation",
    "Severity",
    "Silence",
    "check_limits",
    "check_rule",
    "check_silence",
    "evaluate",
    "is_silenced",
    "let_go",
]

AlertMetric = Literal[
    "failure_rate", "failures", "retries", "ended", "expired", "missed", "wait_p95", "run_p95", "silence", "depth",
    "age", "dead_letters", "workers", "unschedulable", "schedules_late", "broker_alarm",
]  # fmt: skip

METRICS: Final[Mapping[str, str]] = {
    "failure_rate": "share of the jobs that ended in the window which did so badly, 0 to 1",
    "failures": "jobs that ended badly in the window",
    "retries": "attempts in the window after which another one follows",
    "ended": "jobs that ended in the window; with `below`: too few of them",
    "expired": "jobs whose time was over in the window before they started",
    "missed": "occurrences of schedules in the window that were not emitted in time, and are not made up for",
    "wait_p95": "seconds from due to the first start, of 95 of 100 jobs at most",
    "run_p95": "seconds that 95 of 100 runs take at most",
    "silence": "seconds since the last success of a task that has had one: a missing heartbeat",
    "depth": "messages that wait in a queue",
    "age": "seconds for which the longest waiting job of a queue in the store has been due",
    "dead_letters": "dead letters of a queue",
    "workers": "live workers of a queue that take its jobs, so none that drains; with `below`: too few of them",
    "unschedulable": "jobs that wait for a node, and no node that is known could ever run them",
    "schedules_late": "seconds for which the latest schedule has been due",
    "broker_alarm": "1 while RabbitMQ takes no messages as it is short of memory or disk, else 0",
}
"""What a rule can look at."""
PER_QUEUE: Final = frozenset({"depth", "age", "dead_letters", "workers"})
"""Figures of queues; they belong to no tenant."""
_OF_INSTANCE: Final = PER_QUEUE | {"schedules_late", "broker_alarm"}

_MOST_RULES: Final = 100
_MOST_CHANNELS: Final = 100
_MOST_SILENCES: Final = 100

Severity = Literal["info", "warning", "critical"]


class AlertState(StrEnum):
    """How it is with one alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When there is to be an alert. Spans are seconds.

    Attributes:
        metric: one of `METRICS`.
        tenant: whose jobs it is about; "" those of all, and what belongs to the instance.
        task, queue: patterns (`billing.*`) of what it is about; "" everything.
        each: whether each task, each queue is looked at by itself, or all together.
        threshold: the figure beyond which there is an alert.
        below: the alert is for figures below the threshold, not above.
        clear: the figure at which it ends; None: the threshold itself.
        at_least: jobs that must have ended in the window for rates and times to say anything.
        window: figures are those of so long until now.
        pending_for: for so long the figure has to be beyond the threshold before the alert fires.
        clear_for: for so long it is back before the alert ends.
        repeat: after so long another notice is sent while it goes on; 0: never.
        channels: whom to notify, see `taskmq.model.history.channels`.
        unless: names of other rules of the tenant: while one of them fires, no notice of this one is sent.
        note: what to do about it; goes along.
        is_enabled: it is looked at.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    metric: AlertMetric
    threshold: float
    tenant: Annotated[str, msgspec.Meta(max_length=255)] = ""
    task: Annotated[str, msgspec.Meta(max_length=255)] = ""
    queue: Annotated[str, msgspec.Meta(max_length=255)] = ""
    each: Literal["", "task", "queue"] = ""
    below: bool = False
    clear: float | None = None
    at_least: Annotated[int, msgspec.Meta(ge=0)] = 1
    window: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 300.0
    pending_for: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    clear_for: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    repeat: Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)] = 14_400.0
    severity: Severity = "warning"
    channels: Annotated[tuple[str, ...], msgspec.Meta(max_length=20)] = ()
    unless: Annotated[tuple[str, ...], msgspec.Meta(max_length=20)] = ()
    note: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    is_enabled: bool = True

    def is_beyond(self, value: float) -> bool:
        """Whether there is to be an alert for a figure."""
        return value < self.threshold if self.below else value > self.threshold

    def is_back(self, value: float) -> bool:
        """Whether an alert that there is ends with a figure."""
        limit = self.threshold if self.clear is None else self.clear
        return value >= limit if self.below else value <= limit


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a rule and one subject. Instants are ms since the epoch.

    Attributes:
        subject: what it is about: `task:NAME`, `queue:NAME`, or "" for all together.
        since: since when the figure is beyond the threshold; of a resolved one, since when it is not.
        back: since when a firing one's figure is back; None: it is not.
        told: when a notice that it fires was last sent; None: never.
        number: grows with each change of the state.
        version: grows with each change; 0 before the store has it.
    """

    tenant: str
    rule: str
    subject: str
    state: AlertState
    since: int
    value: float
    changed: int
    severity: Severity = "warning"
    back: int | None = None
    told: int | None = None
    number: int = 0
    version: int = 0


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that fit send no notices until it ends, ms since the epoch.

    Attributes:
        rule, subject: patterns; "" every one.
    """

    id: str
    tenant: str = ""
    rule: str = ""
    subject: str = ""
    begins: int
    ends: int
    by: str = ""
    note: str = ""


class AlertChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a notice says: `kind` is what has happened, and `alert` how it is now."""

    kind: Literal["firing", "again", "resolved", "test"]
    alert: Alert


class Evaluation(msgspec.Struct, frozen=True):
    """What a look at one rule came to.

    Attributes:
        alerts: those that are to be written; they have the versions that were read.
        changes: those to report.
    """

    alerts: list[Alert]
    changes: list[AlertChange]


def check_rule(rule: AlertRule) -> None:
    """Return if a rule can be.

    Raises:
        InvalidOption: it cannot.
    """
    if rule.metric in _OF_INSTANCE and rule.tenant:
        raise InvalidOption(f"rule {rule.name}: {rule.metric} belongs to the instance, not to a tenant")
    if rule.metric in PER_QUEUE and rule.each == "task":
        raise InvalidOption(f"rule {rule.name}: {rule.metric} is a figure of queues: each: queue")
    if rule.clear is not None and rule.is_beyond(rule.clear):
        beyond = "below" if rule.below else "above"
        raise InvalidOption(f"rule {rule.name}: clear {rule.clear:g} is {beyond} the threshold {rule.threshold:g}")
    if not all(map(_is_finite, (rule.threshold, rule.clear or 0.0))):
        raise InvalidOption(f"rule {rule.name}: the threshold is a number")


def check_limits(rule: AlertRule, present: Sequence[AlertRule]) -> None:
    """Return if the rule's tenant may have it beside its present rules. The instance may have any number.

    A rule that replaces the one of its name needs no room, and a channel that is used already neither.

    Args:
        present: all rules of the tenant.

    Raises:
        LimitReached: the tenant would have more rules, or more channels, than a tenant may.
    """
    if not rule.tenant:
        return
    if all(each.name != rule.name for each in present) and len(present) >= _MOST_RULES:
        raise LimitReached(
            f"rule {rule.name}: tenant {rule.tenant!r} has {len(present)} alert rules, and may have {_MOST_RULES}: "
            "remove one, or let one rule look at several tasks by `each`",
            most=_MOST_RULES,
        )
    used = {channel for each in present for channel in each.channels}
    left = {channel for each in present if each.name != rule.name for channel in each.channels}
    if not used.issuperset(rule.channels) and len(left.union(rule.channels)) > _MOST_CHANNELS:
        raise LimitReached(
            f"rule {rule.name}: tenant {rule.tenant!r} would have more than {_MOST_CHANNELS} channels in its rules: "
            "use a channel that another rule has",
            most=_MOST_CHANNELS,
        )


def check_silence(silence: Silence, present: Sequence[Silence]) -> None:
    """Return if the silence's tenant may have it beside its present ones. The instance may have any number.

    Each look at rules reads all silences.

    Args:
        present: silences of any tenant that have not ended.

    Raises:
        LimitReached: the tenant would have more silences than a tenant may.
    """
    own = sum(each.tenant == silence.tenant and each.id != silence.id for each in present)
    if silence.tenant and own >= _MOST_SILENCES:
        raise LimitReached(
            f"tenant {silence.tenant!r} has {own} silences, and may have {_MOST_SILENCES}: end one, or let one "
            "of them match several alerts with `*`",
            most=_MOST_SILENCES,
        )


def is_silenced(alert: Alert, silences: Sequence[Silence], now: int) -> bool:
    """Whether an alert sends no notices now."""
    return any(
        each.tenant in ("", alert.tenant)
        and each.begins <= now < each.ends
        and fnmatchcase(alert.rule, each.rule or "*")
        and fnmatchcase(alert.subject, each.subject or "*")
        for each in silences
    )


def evaluate(
    rule: AlertRule,
    samples: Mapping[str, float],
    known: Mapping[str, Alert],
    now: int,
    *,
    silences: Sequence[Silence] = (),
    is_inhibited: bool = False,
) -> Evaluation:
    """Look at a rule.

    Args:
        samples: its figure by subject. A subject without one is back: what is not there is not wrong. Where nothing
            could be read the rule is not to be looked at.
        known: its alerts by subject.
        is_inhibited: a rule of `unless` fires.
    """
    alerts: list[Alert] = []
    changes: list[AlertChange] = []
    for subject in sorted(samples.keys() | known.keys()):
        before = known.get(subject)
        after = _moved(rule, subject, samples.get(subject), before, now)
        if after is None:
            continue
        change = _told(rule, before, after, now)
        # Each notice of a beginning has a notice of the end, whatever holds news back.
        if change == "resolved" or (
            change is not None and not is_inhibited and not is_silenced(after, silences, now)
        ):
            if change != "resolved":
                after = msgspec.structs.replace(after, told=now)
            changes.append(AlertChange(kind=change, alert=after))
        if after != before:
            alerts.append(after)
    return Evaluation(alerts, changes)


def let_go(known: Iterable[Alert], now: int) -> Evaluation:
    """End the alerts of a rule that is not looked at any more: it is disabled, or it is gone."""
    alerts = [_ended(each, each.value, now) for each in known if each.state is not AlertState.RESOLVED]
    return Evaluation(alerts, [AlertChange(kind="resolved", alert=each) for each in alerts if each.told is not None])


def _moved(rule: AlertRule, subject: str, value: float | None, before: Alert | None, now: int) -> Alert | None:
    """How it is with a subject now; None where there is nothing to say."""
    is_beyond = value is not None and rule.is_beyond(value)
    shown = 0.0 if value is None else value
    if before is None or before.state is AlertState.RESOLVED:
        if not is_beyond:
            return None
        fresh = Alert(
            tenant=rule.tenant,
            rule=rule.name,
            subject=subject,
            state=AlertState.PENDING,
            since=now,
            value=shown,
            changed=now,
            severity=rule.severity,
            number=1 if before is None else before.number + 1,
            version=0 if before is None else before.version,
        )
        return _fired(rule, fresh, now)
    if before.state is AlertState.PENDING:
        if not is_beyond:
            return _ended(before, shown, now)
        return _fired(rule, msgspec.structs.replace(before, value=_kept(before, shown)), now)
    if value is not None and not rule.is_back(value):
        return msgspec.structs.replace(before, value=_kept(before, shown), back=None)
    back = now if before.back is None else before.back
    if now - back >= rule.clear_for * 1000:
        return _ended(before, shown, now)
    return msgspec.structs.replace(before, back=back)


def _fired(rule: AlertRule, alert: Alert, now: int) -> Alert:
    if now - alert.since < rule.pending_for * 1000:
        return alert
    return msgspec.structs.replace(alert, state=AlertState.FIRING, changed=now, number=alert.number + 1)


def _ended(alert: Alert, value: float, now: int) -> Alert:
    return msgspec.structs.replace(
        alert, state=AlertState.RESOLVED, since=now, value=value, changed=now, back=None, number=alert.number + 1
    )


def _kept(before: Alert, value: float) -> float:
    """The figure, as it is written: small changes are not worth a write."""
    return value if abs(value - before.value) > abs(before.value) * 0.05 else before.value


def _told(
    rule: AlertRule, before: Alert | None, after: Alert, now: int
) -> Literal["firing", "again", "resolved"] | None:
    """What is to be sent, where nothing holds it back."""
    if after.state is AlertState.FIRING:
        if after.told is None:
            return "firing"
        return "again" if rule.repeat and now - after.told >= rule.repeat * 1000 else None
    if after.state is AlertState.RESOLVED and before is not None and before.told is not None:
        return "resolved"
    return None


def _is_finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")  # noqa: PLR0124 - NaN is the one that differs from itself
