"""Retry policies: whether a failed attempt is followed by another one, and after how long. Pure.

A job may override its task's policy and timeout by `RunOptions`, which its message carries.

Full jitter (Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog 2015): the delay is drawn uniformly from
zero to the policy's ceiling for that attempt, so that tasks which failed together do not retry together.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import Duration, parse_duration

MOST_ATTEMPTS: Final = 1_000_000
"""Maximum of attempts that a job may ask for."""

Backoff = Literal["exponential", "linear", "constant"]

_MICROSECOND = timedelta(microseconds=1)
_Span = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number and pace of the retries of a failed task.

    Args:
        max_attempts: maximum of runs, including the first one; at least 1.
        backoff: growth of the longest delay after attempt n: `base * 2**(n-1)`, `base * n`, or always `base`.
        base: the longest delay after the first attempt.
        cap: upper bound of every delay.
        jitter: whether the delay is drawn uniformly from 0 to the longest one, so that jobs which failed together do
            not retry together; without it, the delay is the longest one.
        on: errors to retry. `Exception` means everything that a task raises, even `SystemExit`, `KeyboardInterrupt`
            and its own `CancelledError`.
        never: errors not to retry, even if `on` has them.

    Raises:
        InvalidOption: a value is invalid.
    """

    max_attempts: int = 5
    backoff: Backoff = "exponential"
    base: Duration = timedelta(seconds=1)
    cap: Duration = timedelta(minutes=5)
    jitter: bool = True
    on: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()
    _base: timedelta = field(init=False, repr=False, compare=False)
    _cap: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is_count(self.max_attempts):
            raise InvalidOption(f"max_attempts={self.max_attempts!r}: must be at least 1, as the first run counts")
        if self.backoff not in ("exponential", "linear", "constant"):
            raise InvalidOption(f"backoff={self.backoff!r}: use 'exponential', 'linear' or 'constant'")
        for name in ("on", "never"):
            if not _are_errors(getattr(self, name)):
                raise InvalidOption(f"{name}={getattr(self, name)!r}: must be a tuple of exception classes")
        object.__setattr__(self, "_base", parse_duration(self.base, what="base"))
        object.__setattr__(self, "_cap", parse_duration(self.cap, what="cap"))

    def retries(self, error: BaseException, *, attempt: int) -> bool:
        """Return whether `error` in the given attempt (from 1) is followed by another attempt."""
        # In a task `sys.exit()` ends only its attempt: a failure like any other.
        is_wanted = isinstance(error, self.on) or (Exception in self.on and not isinstance(error, Exception))
        return attempt < self.max_attempts and is_wanted and not isinstance(error, self.never)

    def ceiling(self, attempt: int) -> timedelta:
        """Return the longest delay after the given attempt (from 1)."""
        # In whole microseconds: timedelta's own arithmetic rounds, and overflows before the cap applies.
        cap, base = self._cap // _MICROSECOND, self._base // _MICROSECOND
        # Any base but zero, doubled 80 times, exceeds the longest timedelta.
        factors = {"exponential": 1 << min(attempt - 1, 80), "linear": attempt, "constant": 1}
        return timedelta(microseconds=min(base * factors[self.backoff], cap))

    def delay(self, attempt: int, *, fraction: float) -> timedelta:
        """Return the delay after the given attempt (from 1).

        Args:
            attempt: the attempt that failed.
            fraction: a random number from 0 to 1, used when `jitter` is on.
        """
        ceiling = self.ceiling(attempt)
        return ceiling * fraction if self.jitter else ceiling


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a job's runs that differ from its task's; durations in milliseconds.

    Attributes:
        timeout: maximum duration of a run, unless the task's is shorter.
        max_attempts, backoff, base, cap, jitter: fields of the retry policy; None: the task's.
        once: whether the job runs at most once, without retries.
    """

    timeout: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=MOST_ATTEMPTS)] | None = None
    backoff: Backoff | None = None
    base: _Span | None = None
    cap: _Span | None = None
    jitter: bool | None = None
    once: bool = False

    @property
    def retries(self) -> dict[str, Any]:
        """The given fields of the retry policy, as arguments of `RetryPolicy`."""
        spans = {name: span for name in ("base", "cap") if (span := getattr(self, name)) is not None}
        plain = {name: getattr(self, name) for name in ("max_attempts", "backoff", "jitter")}
        return {name: value for name, value in plain.items() if value is not None} | {
            name: timedelta(milliseconds=span) for name, span in spans.items()
        }

    def policy(self, own: RetryPolicy | None) -> RetryPolicy | None:
        """Return the job's retry policy; `own` is the task's, None for no retries."""
        if self.once:
            return None
        return replace(own or RetryPolicy(), **self.retries) if self.retries else own


def coarse_delay(milliseconds: int, *, unit: int = 125) -> int:
    """Round a delay up to three significant bits of `unit`s, which makes it at most 25 % longer.

    A broker that keeps delays on binary levels then moves the message at most three times.
    """
    units = -(-milliseconds // unit)
    spare = max(units.bit_length() - 3, 0)
    return (-(-units >> spare) << spare) * unit


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _are_errors(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in cast("tuple[object, ...]", value)
    )
