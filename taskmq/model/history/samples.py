"""The figures that rules look at, of what was counted in their window. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.rollups import MINUTE, Rollup

__all__ = ["OF_ROLLUPS", "queue_samples", "rollup_samples"]

_SUCCESSES: Final = ("succeeded", "answered")
# With too few ended jobs these say nothing.
_NEED_MANY: Final[Mapping[str, Callable[[Rollup], float | None]]] = {
    "failure_rate": lambda rollup: rollup.failure_rate,
    "wait_p95": lambda rollup: rollup.waited.quantile(0.95),
    "run_p95": lambda rollup: rollup.ran.quantile(0.95),
}
_COUNTS: Final[Mapping[str, Callable[[Rollup], float]]] = {
    "failures": lambda rollup: float(rollup.failed),
    "retries": lambda rollup: float(rollup.outcomes.get("retried", 0)),
    "ended": lambda rollup: float(rollup.ended),
}
_SUMMED: Final = frozenset({"depth", "dead_letters", "workers"})
OF_ROLLUPS: Final = frozenset({*_NEED_MANY, *_COUNTS, "silence"})
"""Figures that follow from rollups."""


def rollup_samples(
    rule: AlertRule, rollups: Iterable[Rollup], now: int, *, known: Collection[str] = ()
) -> dict[str, float]:
    """The rule's figure by subject.

    Args:
        rollups: of the rule's tenant, or of all where it has none; also those before its window.
        known: subjects that the rule has alerts of.
    """
    begin = now - rule.window * 1000
    whole: dict[str, Rollup] = {}
    last: dict[str, int] = {}
    for one in rollups:
        key = one.key
        if key.minute + MINUTE <= begin or not _is_about(rule, key.task, key.queue, key.tenant):
            continue
        subject = _subject(rule, key.task, key.queue)
        found = whole.get(subject)
        if found is None:
            found = whole[subject] = Rollup(key)
        found.merge(one)
        if any(one.outcomes.get(name) for name in _SUCCESSES):
            last[subject] = max(last.get(subject, 0), key.minute)
    if rule.metric == "silence":
        # One that has said nothing in the whole window is silent still.
        silent = dict.fromkeys(known, rule.window)
        return silent | {subject: max(now - minute - MINUTE, 0) / 1000 for subject, minute in last.items()}
    if rule.metric in _COUNTS:
        if not rule.each and rule.below:
            whole.setdefault("", Rollup.empty())
        count = _COUNTS[rule.metric]
        return {subject: count(one) for subject, one in whole.items()}
    measure = _NEED_MANY[rule.metric]
    values = {subject: measure(one) for subject, one in whole.items() if one.ended >= rule.at_least}
    return {subject: value for subject, value in values.items() if value is not None}


def queue_samples(rule: AlertRule, values: Mapping[str, float]) -> dict[str, float]:
    """The rule's figure by subject, from the figure of each queue."""
    found = {queue: value for queue, value in values.items() if fnmatchcase(queue, rule.queue or "*")}
    if rule.each:
        return {f"queue:{queue}": value for queue, value in found.items()}
    if not found:
        return {}
    return {"": sum(found.values()) if rule.metric in _SUMMED else max(found.values())}


def _is_about(rule: AlertRule, task: str, queue: str, tenant: str) -> bool:
    return (
        (not rule.tenant or rule.tenant == tenant)
        and fnmatchcase(task, rule.task or "*")
        and fnmatchcase(queue, rule.queue or "*")
    )


def _subject(rule: AlertRule, task: str, queue: str) -> str:
    return {"task": f"task:{task}", "queue": f"queue:{queue}", "": ""}[rule.each]
