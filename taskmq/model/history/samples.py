"""Samples of alert rules, computed from the counts of their windows. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.rollups import EXPIRED, MINUTE, MISSED, Rollup, RollupKey

_SUCCESSES: Final = ("succeeded", "answered")
# Undefined while fewer jobs than `at_least` have ended.
_NEED_MANY: Final[Mapping[str, Callable[[Rollup], float | None]]] = {
    "failure_rate": lambda rollup: rollup.failure_rate,
    "wait_p95": lambda rollup: rollup.waited.quantile(0.95),
    "run_p95": lambda rollup: rollup.ran.quantile(0.95),
}
_COUNTS: Final[Mapping[str, Callable[[Rollup], float]]] = {
    "failures": lambda rollup: float(rollup.failed),
    "retries": lambda rollup: float(rollup.outcomes.get("retried", 0)),
    "ended": lambda rollup: float(rollup.ended),
    "expired": lambda rollup: float(rollup.outcomes.get(EXPIRED, 0)),
    "missed": lambda rollup: float(rollup.outcomes.get(MISSED, 0)),
}
_SUMMED: Final = frozenset({"depth", "dead_letters", "workers"})
OF_ROLLUPS: Final = frozenset({*_NEED_MANY, *_COUNTS, "silence"})
"""Metrics that are computed from rollups."""


class WindowFigures:
    """A rule's samples, accumulated rollup by rollup, so that no rollup needs to be kept.

    Args:
        now: end of the rule's window, ms since the epoch.
    """

    def __init__(self, rule: AlertRule, now: int) -> None:
        self._rule = rule
        self._now = now
        self._begin = now - rule.window * 1000
        self._whole: dict[str, Rollup] = {}
        self._last: dict[str, int] = {}
        # By task, queue and tenant, which repeat every minute; None: the rule does not cover them.
        self._subjects: dict[tuple[str, str, str], str | None] = {}

    def add(self, one: Rollup) -> None:
        """Count a rollup if it belongs to the rule's tenant and lies in its window."""
        key = one.key
        if key.minute + MINUTE <= self._begin or (subject := self._subject(key)) is None:
            return
        found = self._whole.get(subject)
        if found is None:
            found = self._whole[subject] = Rollup(key)
        found.merge_outcomes(one)
        if self._rule.metric == "wait_p95":
            found.waited.merge(one.waited)
        elif self._rule.metric == "run_p95":
            found.ran.merge(one.ran)
        if any(one.outcomes.get(name) for name in _SUCCESSES):
            self._last[subject] = max(self._last.get(subject, 0), key.minute)

    def samples(self, known: Collection[str] = ()) -> Iterator[tuple[str, float]]:
        """Yield each subject with its sample, computed lazily.

        Args:
            known: subjects for which the rule has alerts.
        """
        rule, whole = self._rule, self._whole
        if rule.metric == "silence":
            # A subject without events in the whole window is still silent.
            for subject in known:
                if subject not in self._last:
                    yield subject, rule.window
            for subject, minute in self._last.items():
                yield subject, max(self._now - minute - MINUTE, 0) / 1000
        elif rule.metric in _COUNTS:
            if not rule.each and rule.below and not whole:
                whole = {"": Rollup.empty()}
            for subject, one in whole.items():
                yield subject, _COUNTS[rule.metric](one)
        else:
            for subject, one in whole.items():
                if one.ended >= rule.at_least and (value := _NEED_MANY[rule.metric](one)) is not None:
                    yield subject, value

    def _subject(self, key: RollupKey) -> str | None:
        names = (key.task, key.queue, key.tenant)
        if names not in self._subjects:
            self._subjects[names] = _subject(self._rule, *names) if _is_about(self._rule, *names) else None
        return self._subjects[names]


def job_samples(rule: AlertRule, counts: Mapping[tuple[str, str, str], int]) -> dict[str, float]:
    """Return the rule's sample by subject, from job counts by task, queue and tenant."""
    found: dict[str, float] = {}
    for names, count in counts.items():
        if _is_about(rule, *names):
            subject = _subject(rule, *names)
            found[subject] = found.get(subject, 0.0) + count
    return found


def queue_samples(rule: AlertRule, values: Mapping[str, float]) -> dict[str, float]:
    """Return the rule's sample by subject, from the figure of each queue."""
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


def _subject(rule: AlertRule, task: str, queue: str, tenant: str) -> str:
    del tenant
    return {"task": f"task:{task}", "queue": f"queue:{queue}", "": ""}[rule.each]
