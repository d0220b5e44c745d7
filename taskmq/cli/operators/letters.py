"""What the commands of `taskmq dlq` share: which letters are meant, how far it is, and how one is shown."""

import re
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.output import when
from taskmq.errors import InvalidOption
from taskmq.model.units import parse_duration
from taskmq.operations.dead_letters import Choose, DeadLetter, LetterSelection

__all__ = ["COLUMNS", "Filters", "TerminalProgress", "letter_row", "parse_rate"]

COLUMNS: Final = ("job", "tenant", "task", "attempt", "reason", "error", "died")

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which letters are meant. All conditions have to hold.

    Parameters
    ----------
    task
        Only letters of this task, or of those that fit a pattern such as shop.*
    error
        Only letters whose error ("type: message") has this in it, or fits a pattern.
    reason
        Only letters with this reason: error, timeout, rejected, delivery_limit, ...; or a pattern.
    fingerprint
        Only letters of this failure, as `groups` shows it; the beginning is enough.
    job
        Only the letter of this job.
    tenant
        Only letters of this tenant's jobs; '' those of jobs that have none.
    older_than
        Only letters that died at least so long ago, for example 1h30m.
    newer_than
        Only letters that died at most so long ago.
    depth
        Look at no more than so many letters, the oldest; all when left out.
    """

    task: str | None = None
    error: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    job: str | None = None
    tenant: str | None = None
    older_than: str | None = None
    newer_than: str | None = None
    depth: Annotated[int | None, Parameter(validator=Number(gte=1))] = None

    def choice(self) -> LetterSelection:
        """What was asked for.

        Raises:
            InvalidOption: an age is no duration.
        """
        return LetterSelection(
            task=self.task,
            error=self.error,
            reason=self.reason,
            fingerprint=self.fingerprint,
            job=self.job,
            tenant=self.tenant,
            older_than=None if self.older_than is None else parse_duration(self.older_than, what="older-than"),
            newer_than=None if self.newer_than is None else parse_duration(self.newer_than, what="newer-than"),
        )

    def choose(self, now_ms: int) -> Choose | None:
        """Whether a letter is meant; None where all are."""
        choice = self.choice()
        return None if choice.is_everything else choice.at(now_ms)


def letter_row(letter: DeadLetter) -> dict[str, Any]:
    """One line of a list."""
    return {
        "job": letter.job_id,
        "tenant": letter.tenant,
        "task": letter.task,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "died": when(letter.died),
    }


def parse_rate(text: str) -> float:
    """Letters a second, out of "50/s", "100/m" or "50".

    Raises:
        InvalidOption: it is none of these, or nothing at all.
    """
    found = _RATE.fullmatch(text.strip())
    rate = float(found[1]) / _SECONDS[found[2] or "s"] if found else 0.0
    if rate <= 0:
        raise InvalidOption(f"rate={text!r}: say for example 50/s or 100/m")
    return rate


class TerminalProgress:
    """Says on a terminal how far it is, four times a second; nothing elsewhere.

    Args:
        what: what is done with the letters.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + 0.5
        self._width = 0

    def __call__(self, looked: int, count: int) -> None:
        now = time.monotonic()
        if now >= self._next and sys.stderr.isatty():
            self._next = now + 0.25
            self._show(f"{self._what}: {looked:,} of {count:,} letters looked at")

    def end(self) -> None:
        """Take the line away."""
        if self._width:
            self._show("")
            sys.stderr.write("\r")
            self._width = 0

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = max(self._width, len(text))
