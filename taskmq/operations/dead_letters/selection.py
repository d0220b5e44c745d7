"""Selection of dead letters by their properties. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase

from taskmq.model.units import to_ms
from taskmq.operations.dead_letters.letter import DeadLetter

Choose = Callable[[DeadLetter], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSelection:
    """Conditions on a letter; None accepts any value.

    Args:
        task: the task's name, or a pattern with `*` and `?`.
        error: part of "type: message", such as the type's name; or a pattern for all of it, or for the type.
        reason: the reason, or a pattern.
        fingerprint: a prefix of the fingerprint.
        job: the job's id.
        tenant: the tenant; "" means letters without one.
        older_than: minimum time since it died. A letter without that time is never selected by age.
        newer_than: maximum time since it died.
    """

    task: str | None = None
    error: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    job: str | None = None
    tenant: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every letter matches."""
        return self == LetterSelection()

    def at(self, now_ms: int) -> Choose:
        """Return the predicate for this selection, with ages counted at this instant (ms since the epoch)."""
        latest = None if self.older_than is None else now_ms - to_ms(self.older_than)
        earliest = None if self.newer_than is None else now_ms - to_ms(self.newer_than)

        def matches(letter: DeadLetter) -> bool:
            return (
                self.job in (None, letter.job_id)
                and self.tenant in (None, letter.tenant)
                and (self.task is None or _matches(self.task, letter.task))
                and (self.reason is None or _matches(self.reason, letter.reason))
                and (self.error is None or _matches_error(self.error, letter))
                and (latest is None or (letter.died is not None and letter.died <= latest))
                and (earliest is None or (letter.died is not None and letter.died >= earliest))
                # Last, because it is the most expensive.
                and (self.fingerprint is None or letter.fingerprint.startswith(self.fingerprint.lower()))
            )

        return matches


def _matches(wanted: str, value: str) -> bool:
    return wanted == value or (_is_pattern(wanted) and fnmatchcase(value, wanted))


def _matches_error(wanted: str, letter: DeadLetter) -> bool:
    if _is_pattern(wanted):
        return fnmatchcase(letter.error, wanted) or fnmatchcase(letter.error_type, wanted)
    return wanted in letter.error or wanted in letter.error_type


def _is_pattern(wanted: str) -> bool:
    return not {"*", "?"}.isdisjoint(wanted)
