"""Parts shared by the commands of `taskmq dlq`: filters, and rows of letters."""

import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.api.dead_letters import LetterFilters, LetterView
from taskmq.cli.server_link import text_of_instant
from taskmq.errors import InvalidOption
from taskmq.model.units import parse_duration

COLUMNS: Final = ("job", "tenant", "task", "attempt", "reason", "error", "died")

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Filters on dead letters. All must match.

    Args:
        task: Only letters of this task, or matching a pattern such as shop.*
        error: Only letters whose error ("type: message") contains this text or matches this pattern.
        reason: Only letters with this reason: error, timeout, rejected, delivery_limit, ...; or a pattern.
        fingerprint: Only letters of this failure, as shown by `groups`; a prefix is enough.
        job: Only the letter of this job.
        tenant: Only letters of this tenant's jobs; '' selects jobs without a tenant.
        older_than: Only letters at least this old, such as 1h30m.
        newer_than: Only letters at most this old.
        depth: Search only this many letters, oldest first.
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

    @property
    def given(self) -> LetterFilters:
        """The filters that were given, without the tenant.

        Raises:
            InvalidOption: an age is not a duration.
        """
        for text, option in ((self.older_than, "--older-than"), (self.newer_than, "--newer-than")):
            if text is not None:
                parse_duration(text, what=option)
        facts = {name: value for name, value in asdict(self).items() if name != "tenant" and value is not None}
        return cast("LetterFilters", facts)


def letter_row(letter: LetterView) -> dict[str, Any]:
    """Return the row of a letter in a list."""
    return {
        "job": letter.job_id,
        "tenant": letter.tenant,
        "task": letter.task,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "died": text_of_instant(letter.died),
    }


def parse_rate(text: str) -> float:
    """Parse letters per second from "50/s", "100/m" or "50".

    Raises:
        InvalidOption: the text has none of these forms, or is zero.
    """
    found = _RATE.fullmatch(text.strip())
    rate = float(found[1]) / _SECONDS[found[2] or "s"] if found else 0.0
    if rate <= 0:
        raise InvalidOption(f"rate={text!r}: write for example 50/s or 100/m")
    return rate
