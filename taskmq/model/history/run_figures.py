"""Samples of alert rules about runs of workflows. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from taskmq.model.history.alerts import AlertRule

MOST_FAILED: Final = 1_000
"""Maximum number of failed runs that are counted for a workflow of a tenant."""
MOST_LONGEST: Final = 100
"""Number of the last ended runs, in each state, of which a store finds the longest."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a tenant's runs of one workflow in a window, as stores count them. Times are ms.

    Attributes:
        failed: number of runs that failed in the window, at most `MOST_FAILED`.
        longest: longest duration of the last runs that succeeded or failed in the window, of at most `MOST_LONGEST`
            each; None: there is none.
        oldest: start of the oldest run that has not ended; None: there is none.
        usual: median duration of the last runs that succeeded before the window, of at most `MOST_USUAL`; None: there
            is none.
        earlier: number of the runs in that median.
        due: earliest instant at which a run that has not ended was due; None: none was.
    """

    tenant: str
    workflow: str
    failed: int = 0
    longest: int | None = None
    oldest: int | None = None
    usual: int | None = None
    earlier: int = 0
    due: int | None = None


def run_samples(rule: AlertRule, figures: Iterable[RunFigures], now: int) -> dict[str, float]:
    """Return the rule's sample by subject, from the figures of each tenant's workflows.

    Args:
        now: end of the rule's window, ms since the epoch.
    """
    found: dict[str, float] = {}
    for one in figures:
        if not fnmatchcase(one.workflow, rule.workflow or "*"):
            continue
        value = _value_of(rule, one, now)
        if value is not None:
            subject = f"workflow:{one.workflow}" if rule.each else ""
            before = found.get(subject, 0.0)
            found[subject] = before + value if rule.metric == "runs_failed" else max(before, value)
    return found


def _value_of(rule: AlertRule, one: RunFigures, now: int) -> float | None:
    if rule.metric == "runs_failed":
        return float(one.failed)
    if rule.metric == "run_late":
        return None if one.due is None else max(now - one.due, 0) / 1000
    durations = [each for each in (one.longest, None if one.oldest is None else now - one.oldest) if each is not None]
    if one.usual is None or one.earlier < rule.at_least or not durations:
        return None
    # A run may be shorter than the clock's millisecond.
    return max(durations) / max(one.usual, 1)
