"""Rules that decide when an alert fires and when it is resolved. Pure.

    rule + samples + present alerts -> alerts to write, and changes to notify

One rule evaluates one figure for each subject (a task, a queue, or all of them together). An alert is *pending* once
the figure is beyond the threshold, *firing* once it has been so for `pending_for`, and *resolved* once the figure has
cleared. A pending alert whose figure clears disappears without a notice.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec

from taskmq.errors import InvalidOption, LimitReached

AlertMetric = Literal[
    "failure_rate", "failures", "retries", "ended", "expired", "missed", "wait_p95", "run_p95", "silence", "depth",
    "age", "dead_letters", "workers", "unschedulable", "schedules_late", "broker_alarm",
    "runs_failed", "run_late", "run_duration",
]  # fmt: skip

METRICS: Final[Mapping[str, str]] = {
    "failure_rate": "failed share of the jobs that ended in the window, 0 to 1",
    "failures": "jobs that failed in the window",
    "retries": "attempts in the window that are followed by another one",
    "ended": "jobs that ended in the window; with `below`: too few of them",
    "expired": "jobs that expired in the window before they started",
    "missed": "occurrences of schedules in the window that were not emitted in time, and are not caught up",
    "wait_p95": "seconds from due to the first start, 95th percentile",
    "run_p95": "seconds of a run, 95th percentile",
    "silence": "seconds since the last success of a task that has succeeded before: a missing heartbeat",
    "depth": "messages that wait in a queue",
    "age": "seconds for which the longest waiting job of a queue in the store has been due",
    "dead_letters": "dead letters of a queue",
    "workers": "live workers that take jobs of a queue, neither paused nor draining; with `below`: too few of them",
    "unschedulable": "jobs that wait for a node although no known node could ever run them",
    "schedules_late": "seconds for which the latest schedule has been due",
    "broker_alarm": "1 while RabbitMQ takes no messages because it is short of memory or disk, else 0",
    "runs_failed": "runs of workflows that failed in the window",
    "run_late": "seconds for which the latest scheduled run that has not ended, or not started, has been due",
    "run_duration": "how many times as long as usual a run took that ended in the window, or still runs",
}
"""Figures that a rule can watch."""
PER_QUEUE: Final = frozenset({"depth", "age", "dead_letters", "workers"})
"""Figures of queues; they belong to no tenant."""
OF_RUNS: Final = frozenset({"runs_failed", "run_late", "run_duration"})
"""Figures of runs of workflows."""
MOST_USUAL: Final = 20
"""Number of earlier runs whose median is the usual duration of a workflow's runs."""
_OF_INSTANCE: Final = PER_QUEUE | {"schedules_late", "broker_alarm"}

_RUN_METRICS: Final = "runs_failed, run_late or run_duration"
_MOST_RULES: Final = 100
_MOST_CHANNELS: Final = 100
_MOST_SILENCES: Final = 100

Severity = Literal["info", "warning", "critical"]


class AlertState(StrEnum):
    """State of one alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Condition under which an alert fires. Durations are seconds.

    Attributes:
        metric: one of `METRICS`.
        tenant: tenant whose jobs it watches; "": all jobs, and the figures of the instance.
        task, queue, workflow: patterns (`billing.*`) of what it watches; "": everything. Figures of runs have
            workflows, all others have tasks and queues.
        each: whether each task, queue or workflow is a subject of its own, or all are one.
        threshold: the figure beyond which the alert fires.
        below: the alert fires below the threshold, not above it.
        clear: the figure at which it ends; None: the threshold itself.
        at_least: minimum of ended jobs in the window, or of earlier runs with which a duration is compared; with
            fewer, rates and times are ignored.
        window: length of the time until now that the figures cover.
        pending_for: the figure must be beyond the threshold for this long before the alert fires.
        clear_for: the figure must have cleared for this long before the alert is resolved.
        repeat: interval of further notices while the alert fires; 0: none.
        channels: targets of notices, see `taskmq.model.history.channels`.
        unless: names of the tenant's rules that inhibit this one: while one of them fires, it sends no notices.
        note: what to do about it; notices contain it.
        is_enabled: whether the rule is evaluated.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    metric: AlertMetric
    threshold: float
    tenant: Annotated[str, msgspec.Meta(max_length=255)] = ""
    task: Annotated[str, msgspec.Meta(max_length=255)] = ""
    queue: Annotated[str, msgspec.Meta(max_length=255)] = ""
    workflow: Annotated[str, msgspec.Meta(max_length=255)] = ""
    each: Literal["", "task", "queue", "workflow"] = ""
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
        """Return whether a figure is beyond the threshold."""
        return value < self.threshold if self.below else value > self.threshold

    def is_back(self, value: float) -> bool:
        """Return whether a figure clears an alert."""
        limit = self.threshold if self.clear is None else self.clear
        return value >= limit if self.below else value <= limit


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The alert of one rule and one subject. Instants are ms since the epoch.

    Attributes:
        subject: what it watches: `task:NAME`, `queue:NAME`, `workflow:NAME`, or "" for all together.
        since: start of the time beyond the threshold; of a resolved alert, the instant at which the figure cleared.
        back: when the figure of a firing alert cleared; None: it has not.
        told: when the last notice was sent; None: never.
        number: increases with each change of the state.
        version: increases with each change; 0 before the store has it.
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
    """A time in which matching alerts send no notices. `until` is ms since the epoch.

    Attributes:
        rule, subject: patterns; "": every one.
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
    """The content of a notice: `kind` is what happened, and `alert` the state after it."""

    kind: Literal["firing", "again", "resolved", "test"]
    alert: Alert


class Evaluation(msgspec.Struct, frozen=True):
    """The result of evaluating one rule.

    Attributes:
        alerts: alerts to write, with the versions that were read.
        changes: changes to notify.
    """

    alerts: list[Alert]
    changes: list[AlertChange]


def check_rule(rule: AlertRule) -> None:
    """Check that a rule is consistent.

    Raises:
        InvalidOption: it is contradictory.
    """
    if rule.metric in _OF_INSTANCE and rule.tenant:
        raise InvalidOption(f"rule {rule.name}: {rule.metric} belongs to the instance, not to a tenant")
    if rule.metric in PER_QUEUE and rule.each == "task":
        raise InvalidOption(f"rule {rule.name}: {rule.metric} is measured per queue: set each: queue")
    if rule.metric in OF_RUNS and (rule.task or rule.queue or rule.each in ("task", "queue")):
        raise InvalidOption(f"rule {rule.name}: {rule.metric} is about runs: set workflow, or each: workflow")
    if rule.metric not in OF_RUNS and (rule.workflow or rule.each == "workflow"):
        raise InvalidOption(f"rule {rule.name}: {rule.metric} is not about runs of workflows: use {_RUN_METRICS}")
    if rule.metric == "run_duration" and rule.at_least > MOST_USUAL:
        raise InvalidOption(f"rule {rule.name}: at_least is {rule.at_least}, but {MOST_USUAL} runs are compared")
    if rule.clear is not None and rule.is_beyond(rule.clear):
        beyond = "below" if rule.below else "above"
        raise InvalidOption(f"rule {rule.name}: clear {rule.clear:g} is {beyond} the threshold {rule.threshold:g}")
    if not all(map(_is_finite, (rule.threshold, rule.clear or 0.0))):
        raise InvalidOption(f"rule {rule.name}: the threshold must be a finite number")


def check_limits(rule: AlertRule, present: Sequence[AlertRule]) -> None:
    """Check that a tenant may add a rule to its present ones. The instance may have any number.

    Replacing a rule of the same name, or using a channel that another rule has, needs no room.

    Args:
        present: all rules of the tenant.

    Raises:
        LimitReached: the tenant would have more rules, or more channels, than a tenant may.
    """
    if not rule.tenant:
        return
    if all(each.name != rule.name for each in present) and len(present) >= _MOST_RULES:
        raise LimitReached(
            f"rule {rule.name}: tenant {rule.tenant!r} has {len(present)} alert rules of at most {_MOST_RULES}: "
            "remove one, or cover several tasks with one rule by `each`",
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
    """Check that a tenant may add a silence to its present ones. The instance may have any number.

    The limit exists because each evaluation reads all silences.

    Args:
        present: silences of any tenant that have not ended.

    Raises:
        LimitReached: the tenant would have more silences than a tenant may.
    """
    own = sum(each.tenant == silence.tenant and each.id != silence.id for each in present)
    if silence.tenant and own >= _MOST_SILENCES:
        raise LimitReached(
            f"tenant {silence.tenant!r} has {own} silences of at most {_MOST_SILENCES}: end one, or let one "
            "of them match several alerts with `*`",
            most=_MOST_SILENCES,
        )


def is_silenced(alert: Alert, silences: Sequence[Silence], now: int) -> bool:
    """Return whether a silence suppresses an alert's notices now."""
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
    """Evaluate a rule at the present instant.

    Args:
        samples: its figure by subject. A subject without a figure counts as cleared. If no figures could be read, do
            not evaluate the rule.
        known: its present alerts by subject.
        is_inhibited: whether a rule in `unless` fires.
    """
    alerts: list[Alert] = []
    changes: list[AlertChange] = []
    for subject in sorted(samples.keys() | known.keys()):
        before = known.get(subject)
        after = _advance(rule, subject, samples.get(subject), before, now)
        if after is None:
            continue
        change = _due_notice(rule, before, after, now)
        # Each notice of a firing alert is followed by a notice of its end, even if a silence or a rule inhibits
        # notices.
        if change == "resolved" or (
            change is not None and not is_inhibited and not is_silenced(after, silences, now)
        ):
            if change != "resolved":
                after = msgspec.structs.replace(after, told=now)
            changes.append(AlertChange(kind=change, alert=after))
        if after != before:
            alerts.append(after)
    return Evaluation(alerts, changes)


def end_alerts(known: Iterable[Alert], now: int) -> Evaluation:
    """End the alerts of a rule that is no longer evaluated, because it was disabled or removed."""
    alerts = [_resolve(each, each.value, now) for each in known if each.state is not AlertState.RESOLVED]
    return Evaluation(alerts, [AlertChange(kind="resolved", alert=each) for each in alerts if each.told is not None])


def _advance(rule: AlertRule, subject: str, value: float | None, before: Alert | None, now: int) -> Alert | None:
    """Return a subject's alert after this evaluation; None if there is none and none begins."""
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
        return _fire(rule, fresh, now)
    if before.state is AlertState.PENDING:
        if not is_beyond:
            return _resolve(before, shown, now)
        return _fire(rule, msgspec.structs.replace(before, value=_value_to_write(before, shown)), now)
    if value is not None and not rule.is_back(value):
        return msgspec.structs.replace(before, value=_value_to_write(before, shown), back=None)
    back = now if before.back is None else before.back
    if now - back >= rule.clear_for * 1000:
        return _resolve(before, shown, now)
    return msgspec.structs.replace(before, back=back)


def _fire(rule: AlertRule, alert: Alert, now: int) -> Alert:
    if now - alert.since < rule.pending_for * 1000:
        return alert
    return msgspec.structs.replace(alert, state=AlertState.FIRING, changed=now, number=alert.number + 1)


def _resolve(alert: Alert, value: float, now: int) -> Alert:
    return msgspec.structs.replace(
        alert, state=AlertState.RESOLVED, since=now, value=value, changed=now, back=None, number=alert.number + 1
    )


def _value_to_write(before: Alert, value: float) -> float:
    """Return the figure to write: a small change is not worth a write."""
    return value if abs(value - before.value) > abs(before.value) * 0.05 else before.value


def _due_notice(
    rule: AlertRule, before: Alert | None, after: Alert, now: int
) -> Literal["firing", "again", "resolved"] | None:
    """Return the kind of notice that is due, before silences and inhibitions."""
    if after.state is AlertState.FIRING:
        if after.told is None:
            return "firing"
        return "again" if rule.repeat and now - after.told >= rule.repeat * 1000 else None
    if after.state is AlertState.RESOLVED and before is not None and before.told is not None:
        return "resolved"
    return None


def _is_finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")  # noqa: PLR0124 - NaN is the one that differs from itself
