"""Rules for how long ended jobs are kept: all jobs, or some kinds for a shorter time.

A rule is written `7d` (all jobs, in whole days), `12h tenant:acme status:succeeded` (the jobs that match a filter) or
`last:100 task:shop.tick` (only the newest of them are kept).
"""

import re
from datetime import timedelta
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.units import parse_duration, to_ms

_SOME_TIME: Final = 1_800_000_000_000
_LAST: Final = re.compile(r"last:([0-9]{1,9})")


class KeepRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for how long jobs are kept after they ended, or how many of them.

    Attributes:
        where: a filter in the syntax of `job list`; "" means all jobs.
        older_than: forget jobs that ended this many ms ago; None: no limit by age.
        keep_last: keep this many jobs, those submitted last; None: no limit by number.
    """

    where: str
    older_than: int | None = None
    keep_last: int | None = None

    @classmethod
    def read(cls, text: str) -> "KeepRule":
        """Parse AGE [FILTER] or last:COUNT FILTER.

        Raises:
            InvalidOption: the text is neither, an age for all jobs is not in whole days, or the filter selects sent
                jobs.
            InvalidFilter: the filter is malformed.
        """
        first, _, where = text.strip().partition(" ")
        where = where.strip()
        # The filter is parsed again at each use, for its relative times; errors have to show now.
        parse_filter(where, _SOME_TIME).check_stored()
        if (last := _LAST.fullmatch(first)) is not None:
            if not where:
                raise InvalidOption(f"--keep {text!r}: add a filter, for example last:{last[1]} tenant:acme")
            return cls(where=where, keep_last=int(last[1]))
        age = parse_duration(first, what=f"--keep {text!r}")
        if not where and (age.days < 1 or age != timedelta(days=age.days)):
            raise InvalidOption(f"--keep {text!r}: without a filter, give whole days, at least 1d")
        return cls(where=where, older_than=to_ms(age))

    def which(self, now: int) -> JobFilter:
        """Return the filter of its jobs; `now` in ms since the epoch."""
        return parse_filter(self.where, now)
