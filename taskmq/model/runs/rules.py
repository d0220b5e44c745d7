"""Rules that decide when a step starts, as predicates on the ends of its upstream steps."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import msgspec


class StepState(StrEnum):
    """State of a step. A running step has a job, children or a child run, or waits for a signal or an instant."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether it is an end."""
        return self not in (StepState.WAITING, StepState.RUNNING)


RuleName = Literal[
    "all_success",
    "all_failed",
    "all_done",
    "all_skipped",
    "one_success",
    "one_failed",
    "one_done",
    "none_failed",
    "none_failed_min_one_success",
    "none_skipped",
    "all_done_min_one_success",
    "at_least",
]
"""Start of a step, once:

- `all_success`: all upstream steps have succeeded;
- `all_failed`, `all_skipped`: all have failed, all were skipped;
- `all_done`: all have ended;
- `one_success`, `one_failed`: one has succeeded, one has failed;
- `one_done`: one has succeeded or failed;
- `none_failed`, `none_skipped`: all have ended, and none has failed, none was skipped;
- `none_failed_min_one_success`, `all_done_min_one_success`: the same, and one has succeeded;
- `at_least`: that many have succeeded.

If the rule is not met once all upstream steps have ended, the step never starts. It ends as `upstream_failed` if it
waited for successes and an upstream step failed, else as `skipped`. An upstream step that never started because of a
failure counts as failed.
"""

RULE_NAMES: Final[tuple[RuleName, ...]] = get_args(RuleName)
RULE_ALIASES: Final[dict[str, RuleName]] = {"all": "all_success", "any": "one_success", "always": "all_done"}
"""Other names of rules."""

_FOR_OTHER_ENDS: Final = frozenset({"all_failed", "all_skipped", "one_failed", "one_done", "none_skipped"})


class StepRule(NamedTuple):
    """A rule; `least` is the number of `at_least`."""

    name: RuleName
    least: int = 0


class UpstreamCounts(msgspec.Struct, array_like=True, omit_defaults=True):
    """Numbers of upstream steps by how they ended; `failed` includes those that ended as `upstream_failed`."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0

    def add(self, state: StepState) -> None:
        """Count the end of one upstream step."""
        match state:
            case StepState.SUCCEEDED:
                self.succeeded += 1
            case StepState.FAILED | StepState.UPSTREAM_FAILED:
                self.failed += 1
            case StepState.SKIPPED:
                self.skipped += 1
            case _:
                self.cancelled += 1

    @property
    def ended(self) -> int:
        """Number of upstream steps that have ended."""
        return self.succeeded + self.failed + self.skipped + self.cancelled


_PREDICATES: Final[dict[RuleName, Callable[[UpstreamCounts, int, int], bool]]] = {
    "all_success": lambda counts, total, _: counts.succeeded == total,
    "all_failed": lambda counts, total, _: counts.failed == total,
    "all_skipped": lambda counts, total, _: counts.skipped == total,
    "all_done": lambda counts, total, _: counts.ended == total,
    "one_success": lambda counts, _total, _least: counts.succeeded > 0,
    "one_failed": lambda counts, _total, _least: counts.failed > 0,
    "one_done": lambda counts, _total, _least: counts.succeeded + counts.failed > 0,
    "none_failed": lambda counts, total, _: counts.ended == total and not counts.failed,
    "none_failed_min_one_success": (
        lambda counts, total, _: counts.ended == total and not counts.failed and counts.succeeded > 0
    ),
    "none_skipped": lambda counts, total, _: counts.ended == total and not counts.skipped,
    "all_done_min_one_success": lambda counts, total, _: counts.ended == total and counts.succeeded > 0,
    "at_least": lambda counts, _, least: counts.succeeded >= least,
}


def parse_rule(value: Any) -> StepRule:
    """Return the rule of a content: a name, or `{"at_least": number}`.

    Raises:
        ValueError: it is neither; the message says what is possible.
    """
    match value:
        case str() if (name := RULE_ALIASES.get(value, cast("RuleName", value))) in RULE_NAMES and name != "at_least":
            return StepRule(name)
        case {"at_least": int(least)} if len(cast("dict[str, Any]", value)) == 1 and least >= 1:
            return StepRule("at_least", least)
        case _:
            known = ", ".join((*RULE_NAMES[:-1], *RULE_ALIASES))
            raise ValueError(f"{value!r} is not a rule; known: {known}, and {{at_least: number}}")


def decide(rule: StepRule, counts: UpstreamCounts, total: int) -> StepState:
    """Return the state of a waiting step: `RUNNING`, still `WAITING`, or its end without a start.

    Args:
        total: number of its upstream steps.
    """
    if _PREDICATES[rule.name](counts, total, rule.least):
        return StepState.RUNNING
    if counts.ended < total:
        return StepState.WAITING
    is_failure = counts.failed > 0 and rule.name not in _FOR_OTHER_ENDS
    return StepState.UPSTREAM_FAILED if is_failure else StepState.SKIPPED
