"""Cron trigger in a time zone."""

from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Final, get_args

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules.triggers.cron_parser import follows_real_time, is_hashed, parse_fields
from taskmq.schedules.triggers.fields import Fields
from taskmq.schedules.triggers.trigger import DstFold, DstGap
from taskmq.schedules.triggers.zones import find_zone, next_instant

_GAPS: Final = get_args(DstGap)
_FOLDS: Final = get_args(DstFold)


@dataclass(frozen=True, slots=True)
class Cron:
    """Due whenever the clocks of a zone match a cron expression.

    A time skipped when clocks go forward is due at the first instant after the gap (`dst_gap="run_after"`) or not at
    all (`"skip"`); a time repeated when they go back is due the `"first"` time, the `"second"`, or `"both"` times
    (`dst_fold`). So a job at 02:30 runs once each day by default. An expression whose hours are `*` or have a step
    ignores clock changes: `*/30 * * * *` is due every half hour.

    Args:
        expression: five fields, or six with `seconds`, seconds first; or `@yearly`, `@monthly`, `@weekly`, `@daily`,
            `@hourly`. Supports names (`MON`, `jan`), `L`, `15W`, `5#2`, `L5` and `H`.
        tz: the zone's name.
        both_days: a day must match both the day-of-month and the day-of-week field; cron accepts either if both are
            restricted.
        hash_id: the text that `H` is derived from; a schedule passes its name.

    Raises:
        InvalidOption: the expression is invalid or never due, or an option is unknown.
    """

    expression: str
    tz: str = "UTC"
    seconds: bool = False
    dst_gap: DstGap = "run_after"
    dst_fold: DstFold = "first"
    both_days: bool = False
    hash_id: str = ""
    fields: Fields = field(init=False, repr=False, compare=False)
    zone: tzinfo = field(init=False, repr=False, compare=False)
    follows_real_time: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dst_gap not in _GAPS:
            raise InvalidOption(f"dst_gap={self.dst_gap!r}: must be {' or '.join(map(repr, _GAPS))}")
        if self.dst_fold not in _FOLDS:
            raise InvalidOption(f"dst_fold={self.dst_fold!r}: must be one of {', '.join(map(repr, _FOLDS))}")
        hash_id = self.hash_id if is_hashed(self.expression) else ""
        fields = parse_fields(self.expression, seconds=self.seconds, both=self.both_days, hash_id=hash_id)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "zone", find_zone(self.tz))
        object.__setattr__(self, "follows_real_time", follows_real_time(self.expression, seconds=self.seconds))

    def next_after(self, instant: int, /) -> int | None:
        """Return the first instant strictly after `instant`; None only beyond the year 9999."""
        # Ignoring clock changes, a repeated time is due both times.
        gap: DstGap = "skip" if self.follows_real_time else self.dst_gap
        fold: DstFold = "both" if self.follows_real_time else self.dst_fold
        found = next_instant(self.fields, self.zone, instant // 1000, gap=gap, fold=fold)
        return None if found is None or found * 1000 > LAST_INSTANT else found * 1000

    def describe(self) -> str:
        """Describe the rule, such as "at 02:30 on Monday to Friday, Europe/Paris time"."""
        from taskmq.schedules.triggers.words import cron_in_words

        return f"{cron_in_words(self.fields)}, {'UTC' if self.tz == 'UTC' else f'{self.tz} time'}"

    def with_hash_id(self, name: str) -> "Cron":
        """Return the same rule with its `H` derived from `name`, unless it has a `hash_id` or no `H`."""
        return replace(self, hash_id=name) if not self.hash_id and is_hashed(self.expression) else self
