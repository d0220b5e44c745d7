"""How long ended jobs are kept: all of them, and those of a kind for a shorter time.

A rule is written `7d` (all of them, in whole days), `12h tenant:acme status:succeeded` (what a filter finds) or
`last:100 task:shop.tick` (the newest of what it finds).
"""

import re
from datetime import timedelta
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.units import parse_duration, to_ms

__all__ = ["KeepRule"]

_SOME_TIME: Final = 1_800_000_000_000
_LAST: Final = re.compile(r"last:([0-9]{1,9})")


class KeepRule(msgspec.Struct, frozen=True, kw_only=True):
    """For how long some jobs are kept once they have ended, or how many of them.

    Attributes:
        where: a filter, as `job list` has it; "": all jobs.
        older_than: those that ended so many ms ago are forgotten; None: it does not go by that.
        keep_last: but for so many that were submitted last; None: it does not go by that.
    """

    where: str
    older_than: int | None = None
    keep_last: int | None = None

    @classmethod
    def read(cls, text: str) -> "KeepRule":
        """Read AGE [FILTER] or last:COUNT FILTER.

        Raises:
            InvalidOption: it is neither, or an age for all jobs is not in whole days.
            InvalidFilter: the filter cannot be read.
        """
        first, _, where = text.strip().partition(" ")
        where = where.strip()
        # Its relative times are read anew at each use; whether they can be is known now.
        parse_filter(where, _SOME_TIME)
        if (last := _LAST.fullmatch(first)) is not None:
            if not where:
                raise InvalidOption(f"--keep {text!r}: the newest of which jobs? last:{last[1]} tenant:acme")
            return cls(where=where, keep_last=int(last[1]))
        age = parse_duration(first, what=f"--keep {text!r}")
        if not where and (age.days < 1 or age != timedelta(days=age.days)):
            raise InvalidOption(f"--keep {text!r}: all jobs are kept for whole days, at least 1d")
        return cls(where=where, older_than=to_ms(age))

    def which(self, now: int) -> JobFilter:
        """The jobs that it is about; `now` in ms since the epoch."""
        return parse_filter(self.where, now)
