"""Limits that all workers of an app share: the rate of a task's starts, and its concurrency. Pure.

Limits of one run (its time, its memory) or of one worker (`worker_concurrency`) are elsewhere.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from taskmq.contracts.stores import Demand, PlaceDemand, RateDemand
from taskmq.errors import InvalidOption
from taskmq.model.codec import Signature
from taskmq.model.keys import is_line_key, is_once_key, limit_key, places_key, rate_key, split_tenant_key
from taskmq.model.units import parse_duration
from taskmq.options.keys import ArgumentKey, KeyMaker, check_key, read_key_maker

OnFailure = Literal["closed", "open"]

_RATE: Final = re.compile(r"\s*(?P<count>[0-9]+)\s*/\s*(?P<time>[^\s].*)")
_UNITS: Final = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0,
                 "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}  # fmt: skip
_SHORTEST: Final = 1e-5
_LONGEST: Final = 31 * 86_400.0
_MOST: Final = 1_000_000

STRICT_MARGIN: Final = 0.05
"""Tolerance in seconds for a late start under a strict rate.

Each period of the rate is longer by this much, so that such starts do not exceed it.
"""


class RateLimit(msgspec.Struct, frozen=True):
    """Rate at which a task starts, over all workers of the app.

    Args:
        rate: such as "100/s", "10/m", "500/h", "1/30s". Starts are spread evenly, but may be a quarter of a second
            early: "20/s" may start 26 in some second.
        key: one limit for each value: the name of a parameter, a template such as "{account}:{region}", or a
            function that is called as the task is and returns a string. Default: one limit for all calls.
        burst: how many may start at once after a while without any.
        name: of a limit that several tasks share. Default: the task's own.
        on_failure: while the state does not answer, jobs wait (`closed`) or run without the limit (`open`).
        strict: no period has more starts than the rate says: "20/s" starts at most 20 in any second, and about 19 in
            the long run. Not with a burst.

    Raises:
        InvalidOption: a value is invalid.
    """

    rate: str
    key: KeyMaker | None = None
    burst: int = 1
    name: str | None = None
    on_failure: OnFailure = "closed"
    strict: bool = False

    def __post_init__(self) -> None:
        _ = self.interval
        _check_count("burst", self.burst)
        _check_common("rate_limit", self.key, self.name, self.on_failure)
        if self.strict and self.burst != 1:
            raise InvalidOption(f"rate_limit={self.rate!r}: a strict rate has no burst")
        if self.strict and self.on_failure == "open":
            raise InvalidOption(f"rate_limit={self.rate!r}: strict and on_failure='open' exclude each other")

    @property
    def interval(self) -> float:
        """Seconds between two starts."""
        count, seconds = self._parts()
        return (seconds + STRICT_MARGIN) / count if self.strict else seconds / count

    def demand(self, key: str) -> Demand:
        """Return the demand of one run on the limit of that key."""
        return RateDemand(key=rate_key(key), interval=self.interval, burst=self.burst, strict=self.strict)

    def _parts(self) -> tuple[int, float]:
        """Return the number of starts and the seconds of the period."""
        found = _RATE.fullmatch(str(self.rate))
        if found is None or int(found["count"]) < 1:
            raise InvalidOption(
                f"rate_limit={self.rate!r}: must be a number of starts and a time, such as '100/s', '10/m' or '1/30s'"
            )
        time = found["time"].strip().lower()
        seconds = _UNITS.get(time) or parse_duration(time, what=f"rate_limit={self.rate!r}: its time").total_seconds()
        count = int(found["count"])
        if not _SHORTEST <= seconds / count <= _LONGEST:
            raise InvalidOption(f"rate_limit={self.rate!r}: must be from one start in 31 days to 100,000 in a second")
        return count, seconds


class Concurrency(msgspec.Struct, frozen=True):
    """Maximum of concurrent runs of a task, over all workers of the app.

    Args:
        limit: at least 1.
        key: one limit for each value, as that of a `RateLimit`. Default: one limit for all calls.
        name: of a limit that several tasks share. Default: the task's own.
        on_failure: while the state does not answer, jobs wait (`closed`) or run without the limit (`open`).

    Raises:
        InvalidOption: a value is invalid.
    """

    limit: int
    key: KeyMaker | None = None
    name: str | None = None
    on_failure: OnFailure = "closed"

    def __post_init__(self) -> None:
        _check_count("concurrency", self.limit)
        _check_common("concurrency", self.key, self.name, self.on_failure)

    def demand(self, key: str) -> Demand:
        """Return the demand of one run on the limit of that key."""
        return PlaceDemand(key=places_key(key), places=self.limit)


Limit = RateLimit | Concurrency


class TaskLimit:
    """A limit of a task.

    Attributes:
        limit: as given by the task.
        name: name under which tasks share it.
        takes_key: whether there is one for each key.
        id: kind and name, as in `Envelope.limits`.
        whole: demand that does not depend on the arguments.
    """

    def __init__(self, limit: Limit, key: ArgumentKey | None, *, name: str) -> None:
        self.limit = limit
        self.name = name
        self.takes_key: bool = key is not None
        self._key = key
        self.whole: Demand = limit.demand(name)
        self.id: str = self.whole.key

    def demand(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tenant: str | None) -> Demand:
        """Return the demand of a call with these arguments, for the job's tenant.

        Raises:
            InvalidArguments: they yield no key.
        """
        key = self.key_of(args, kwargs)
        return self.whole if key is None else self.keyed_demand(key, tenant=tenant)

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return the key of a call with these arguments; None if all calls share the limit.

        Raises:
            InvalidArguments: they yield no key.
        """
        return None if self._key is None else self._key.of(args, kwargs)

    def keyed_demand(self, key: str, *, tenant: str | None) -> Demand:
        """Return the demand of a call whose key is known."""
        return self.limit.demand(limit_key(self.name, key, tenant=tenant))

    def plain_demand(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tenant: str | None) -> Demand | None:
        """Return the demand of an encoded call; None if only the task's code can derive the key."""
        if self._key is None:
            return self.whole
        key = self._key.plain_of(args, kwargs)
        return None if key is None else self.keyed_demand(key, tenant=tenant)


def why_limited(key: str) -> str:
    """Return why a job waits behind this gate, which is a `Demand.key` or an idempotency key, for people."""
    if is_once_key(key):
        return "another job with its idempotency key is under way"
    if is_line_key(key):
        return "an earlier job with its order key has not ended"
    kind, _, name = key.partition(":")
    name = split_tenant_key(name)[1]
    if kind == "places":
        return f"as many jobs run as the concurrency limit {name!r} of its task allows"
    return f"as many jobs have started as the rate limit {name!r} of its task allows"


def read_limits(options: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Read a task's `rate_limit` and `concurrency`.

    Raises:
        InvalidOption: a value is invalid.
    """
    rates = [_rate(value) for value in _each(options.get("rate_limit"))]
    places = [_concurrency(value) for value in _each(options.get("concurrency"))]
    return (*rates, *places)


def bind_limits(
    limits: Sequence[Limit], function: Callable[..., Any], signature: Signature, *, owner: str
) -> tuple[TaskLimit, ...]:
    """Bind limits to a task.

    Raises:
        InvalidOption: the task has no such parameter, or two limits have the same name.
    """
    bound: list[TaskLimit] = []
    counts: dict[type, int] = {}
    for limit in limits:
        number = counts[type(limit)] = counts.get(type(limit), 0) + 1
        name = limit.name or (owner if number == 1 else f"{owner}#{number}")
        option = "rate_limit" if isinstance(limit, RateLimit) else "concurrency"
        if any(type(other.limit) is type(limit) and other.name == name for other in bound):
            raise InvalidOption(f"task {owner}: {option}: two limits of one task have the name {name!r}")
        key = None
        if limit.key is not None:
            key = ArgumentKey(limit.key, function, signature, owner=owner, option=f"{option}: key")
        bound.append(TaskLimit(limit, key, name=name))
    return tuple(bound)


def check_shared(limits: Sequence[tuple[str, TaskLimit]]) -> None:
    """Raise `InvalidOption` if tasks share a limit by name but define it differently.

    Args:
        limits: each with the name of its task.
    """
    known: dict[tuple[type, str], tuple[str, TaskLimit]] = {}
    for task, limit in limits:
        first, other = known.setdefault((type(limit.limit), limit.name), (task, limit))
        if _numbers(limit) != _numbers(other):
            raise InvalidOption(
                f"tasks {first} and {task} share the limit {limit.name!r}, but define it as {_text(other)} and "
                f"{_text(limit)}: give both the same numbers, or one of them another name="
            )


def _numbers(limit: TaskLimit) -> tuple[object, ...]:
    given = limit.limit
    numbers = (given.interval, given.burst, given.strict) if isinstance(given, RateLimit) else (given.limit,)
    return (*numbers, limit.takes_key)


def _text(limit: TaskLimit) -> str:
    given = limit.limit
    if isinstance(given, RateLimit):
        number = f"{given.rate}, {'strict' if given.strict else f'burst {given.burst}'}"
    else:
        number = f"{given.limit} at a time"
    return f"{number}{' for each key' if limit.takes_key else ''}"


def _each(value: object) -> Sequence[object]:
    if value is None:
        return ()
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)


def _rate(value: object) -> RateLimit:
    if isinstance(value, RateLimit):
        return value
    if isinstance(value, str):
        return RateLimit(value)
    raise InvalidOption(f"rate_limit={value!r}: must be text such as '100/s', a RateLimit, or a list of these")


def _concurrency(value: object) -> Concurrency:
    if isinstance(value, Concurrency):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Concurrency(value)
    raise InvalidOption(f"concurrency={value!r}: must be a whole number from 1 on, a Concurrency, or a list of these")


def _check_count(option: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise InvalidOption(f"{option}={value!r}: must be a whole number from 1 to {_MOST:,}")


def _check_common(option: str, key: object, name: object, on_failure: object) -> None:
    if key is not None:
        read_key_maker(key, option=f"{option}: key")
    if name is not None:
        check_key(name, option=f"{option}: name")
    if on_failure not in ("closed", "open"):
        raise InvalidOption(f"{option}: on_failure={on_failure!r}: must be 'closed' or 'open'")
