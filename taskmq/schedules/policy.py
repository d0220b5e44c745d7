"""Policies for missed and overlapping occurrences."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, get_args

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import Duration, parse_duration, to_ms

Catchup = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other"]
OnResume = Literal["skip", "catchup"]

_MOST_BUFFERED: Final = 1_000


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule besides its trigger.

    Attributes:
        catchup: what happens to occurrences missed while no beat ran: `skip` them, emit the most recent one `once`
            (default) unless a newer one is emitted anyway, or emit `all`, at low priority and limited rate.
        late_after: age from which an occurrence counts as missed when a beat first sees it; younger ones are always
            emitted. Default 30 seconds.
        catchup_window: maximum age of missed occurrences that are caught up. Default a day.
        catchup_limit: maximum number of occurrences that `all` emits, the latest ones. Default 100.
        catchup_rate: maximum rate of each schedule, per second, up to 100. Default 10.
        overlap: what happens to an occurrence while `max_concurrency` earlier ones wait or run: `allow` (default)
            emits it, `skip` drops it, `buffer_one` and `buffer_all` keep one or all for later, `cancel_other` cancels
            the earlier ones and starts it when they have ended.
        max_concurrency: maximum number of running occurrences in all workers; default 1. Not with `allow`.
        on_resume: what happens to occurrences missed while paused: `skip` (default), or as `catchup` says.
        jitter: delay each occurrence by up to this time, derived from the schedule's name, to spread schedules with
            the same instant. `scheduled_for` stays the same.
    """

    catchup: Catchup
    late_after: Duration
    catchup_window: Duration
    catchup_limit: int
    catchup_rate: int
    overlap: Overlap
    max_concurrency: int
    on_resume: OnResume
    jitter: Duration


class SchedulePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Validated `ScheduleOptions`. Times are in milliseconds."""

    catchup: Catchup = "once"
    late_after: int = 30_000
    catchup_window: int = 86_400_000
    catchup_limit: int = 100
    catchup_rate: int = 10
    overlap: Overlap = "allow"
    max_concurrency: int = 1
    on_resume: OnResume = "skip"
    jitter: int = 0

    @property
    def most_buffered(self) -> int:
        """Maximum number of occurrences that may wait for earlier ones."""
        return {"buffer_one": 1, "buffer_all": _MOST_BUFFERED}.get(self.overlap, 0)

    def with_options(self, options: Mapping[str, Any], *, schedule: str) -> "SchedulePolicy":
        """Return the policy with these options changed.

        Raises:
            InvalidOption: as `read_policy`.
        """
        said = {**self.as_options(), **options}
        if said.get("overlap", DEFAULT_POLICY.overlap) == "allow" and "max_concurrency" not in options:
            # It no longer limits anything.
            said.pop("max_concurrency", None)
        return read_policy(said, schedule=schedule)

    def facts(self) -> dict[str, Any]:
        """Return the options by name for people and programs; times are in seconds."""
        return {key: value / 1000 if key in _TIMES else value for key, value in msgspec.structs.asdict(self).items()}

    def as_options(self) -> dict[str, Any]:
        """Return the options from which `read_policy` makes this policy, without defaults."""
        defaults = DEFAULT_POLICY.facts()
        return {key: value for key, value in self.facts().items() if value != defaults[key]}


_TIMES: Final = ("late_after", "catchup_window", "jitter")
_COUNTS: Final = ("catchup_limit", "catchup_rate", "max_concurrency")
_CHOICES: Final[dict[str, Any]] = {"catchup": Catchup, "overlap": Overlap, "on_resume": OnResume}
DEFAULT_POLICY: Final = SchedulePolicy()


def read_policy(options: Mapping[str, Any], *, schedule: str) -> SchedulePolicy:
    """Build the policy from its options.

    Raises:
        InvalidOption: an option is unknown or has an invalid value; the message names the schedule.
    """
    facts: dict[str, Any] = {}
    for key, value in options.items():
        facts[key] = _read_option(key, value, schedule)
    policy = SchedulePolicy(**facts)
    if policy.overlap == "allow" and "max_concurrency" in options:
        raise InvalidOption(
            f"schedule {schedule!r}: max_concurrency has no effect with overlap='allow'; choose for an "
            "occurrence while earlier ones run: 'skip', 'buffer_one', 'buffer_all' or 'cancel_other'"
        )
    return policy


def _read_option(key: str, value: Any, schedule: str) -> Any:
    if key in _TIMES:
        return to_ms(parse_duration(value, what=f"schedule {schedule!r}: {key}"))
    if key in _COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidOption(f"schedule {schedule!r}: {key}={value!r}: must be a number, at least 1")
        return value
    if key in _CHOICES:
        choices = get_args(_CHOICES[key])
        if value not in choices:
            raise InvalidOption(f"schedule {schedule!r}: {key}={value!r}: one of {', '.join(map(repr, choices))}")
        return value
    known = ", ".join([*_CHOICES, *_TIMES, *_COUNTS])
    raise InvalidOption(f"schedule {schedule!r}: unknown option {key!r}; options: {known}")
