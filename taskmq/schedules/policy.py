"""What becomes of occurrences that were not emitted in time, or that come while earlier ones run."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, get_args

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import Duration, parse_duration, to_ms

__all__ = ["DEFAULT_POLICY", "Catchup", "OnResume", "Overlap", "ScheduleOptions", "SchedulePolicy", "read_policy"]

Catchup = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other"]
OnResume = Literal["skip", "catchup"]

_MOST_BUFFERED: Final = 1_000


class ScheduleOptions(TypedDict, total=False):
    """What a schedule takes besides its trigger.

    Attributes:
        catchup: what becomes of occurrences that were missed, as no beat ran: `skip` them, emit the most recent one
            `once` (default), unless a newer one is emitted anyway, or emit `all`, at low priority and a few a second.
        late_after: an occurrence that is older when a beat sees it counts as missed; younger ones are emitted
            whatever `catchup` says. Default 30 seconds.
        catchup_window: what was missed longer ago stays missed. Default a day.
        catchup_limit: `all` emits the last so many. Default 100.
        catchup_rate: and so many a second of each schedule, 100 at most. Default 10.
        overlap: what becomes of an occurrence while `max_concurrency` earlier ones wait or run: `allow` (default)
            emits it, `skip` drops it, `buffer_one` and `buffer_all` keep one or all for later, `cancel_other` cancels
            the earlier ones; it starts when they have ended.
        max_concurrency: how many occurrences may run at a time, in all workers; default 1. Not with `allow`.
        on_resume: what becomes of the occurrences of a pause: `skip` (default), or what `catchup` says.
        jitter: emit each occurrence later than its instant, by a time up to this that follows from the schedule's
            name, so that many of one instant are spread. `scheduled_for` stays as it is.
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
    """`ScheduleOptions`, checked. Times are milliseconds."""

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
        """How many occurrences may wait for earlier ones."""
        return {"buffer_one": 1, "buffer_all": _MOST_BUFFERED}.get(self.overlap, 0)

    def changed(self, options: Mapping[str, Any], *, schedule: str) -> "SchedulePolicy":
        """The policy with these options; what they do not say stays.

        Raises:
            InvalidOption: as `read_policy`.
        """
        said = {**self.as_options(), **options}
        if said.get("overlap", DEFAULT_POLICY.overlap) == "allow" and "max_concurrency" not in options:
            # It limits nothing any more.
            said.pop("max_concurrency", None)
        return read_policy(said, schedule=schedule)

    def facts(self) -> dict[str, Any]:
        """Return the options by name, as people and programs read them; times are seconds."""
        return {key: value / 1000 if key in _TIMES else value for key, value in msgspec.structs.asdict(self).items()}

    def as_options(self) -> dict[str, Any]:
        """What `read_policy` makes this of; only what is not the default."""
        defaults = DEFAULT_POLICY.facts()
        return {key: value for key, value in self.facts().items() if value != defaults[key]}


_TIMES: Final = ("late_after", "catchup_window", "jitter")
_COUNTS: Final = ("catchup_limit", "catchup_rate", "max_concurrency")
_CHOICES: Final[dict[str, Any]] = {"catchup": Catchup, "overlap": Overlap, "on_resume": OnResume}
DEFAULT_POLICY: Final = SchedulePolicy()


def read_policy(options: Mapping[str, Any], *, schedule: str) -> SchedulePolicy:
    """The policy that the options ask for.

    Raises:
        InvalidOption: an option is unknown, or has a value that it cannot have; names the schedule.
    """
    facts: dict[str, Any] = {}
    for key, value in options.items():
        facts[key] = _read(key, value, schedule)
    policy = SchedulePolicy(**facts)
    if policy.overlap == "allow" and "max_concurrency" in options:
        raise InvalidOption(
            f"schedule {schedule!r}: max_concurrency limits nothing with overlap='allow'; say what becomes of an "
            "occurrence while earlier ones run: 'skip', 'buffer_one', 'buffer_all' or 'cancel_other'"
        )
    return policy


def _read(key: str, value: Any, schedule: str) -> Any:
    if key in _TIMES:
        return to_ms(parse_duration(value, what=f"schedule {schedule!r}: {key}"))
    if key in _COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidOption(f"schedule {schedule!r}: {key}={value!r}: a number, at least 1")
        return value
    if key in _CHOICES:
        choices = get_args(_CHOICES[key])
        if value not in choices:
            raise InvalidOption(f"schedule {schedule!r}: {key}={value!r}: one of {', '.join(map(repr, choices))}")
        return value
    known = ", ".join([*_CHOICES, *_TIMES, *_COUNTS])
    raise InvalidOption(f"schedule {schedule!r}: no option is called {key!r}; there are {known}")
