"""Options of idempotent tasks, and of tasks with unique jobs. Pure."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.keys import once_key
from taskmq.model.units import parse_duration
from taskmq.options.keys import KeyMaker, check_key, read_key_maker

UniqueFor = Literal["waiting", "running"]
UniquePolicy = Literal["refuse", "existing", "replace", "debounce", "throttle"]

UNIQUE_META: Final = "taskmq.unique"
"""Key of an envelope's `meta`: token and name of the claim that a unique job was sent with."""

_DAY: Final = 86_400.0
_OCCURRENCE_TTL: Final = 900.0


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """Idempotency of a task: its work is done once per key.

    Attributes:
        maker: derives the keys; None if only calls have keys.
        scope: the scope of keys; None: the task's own.
        ttl: seconds for which finished work is remembered.
    """

    maker: KeyMaker | None = None
    scope: str | None = None
    ttl: float = _DAY

    def ttl_of(self, *, is_occurrence: bool) -> float:
        """Return the seconds for which a key is remembered.

        Args:
            is_occurrence: whether beat made the key, only to prevent its own duplicates. A schedule of one second
                would accumulate too many keys in a day.
        """
        return min(self.ttl, _OCCURRENCE_TTL) if is_occurrence else self.ttl

    def name_of(self, task: str, key: str, *, tenant: str | None) -> str:
        """Return the name of the claim on a key of the task."""
        return once_key(self.scope or task, key, tenant=tenant)


NO_IDEMPOTENCY: Final = Idempotency()


class Uniqueness(msgspec.Struct, frozen=True, kw_only=True):
    """Uniqueness of a task's jobs.

    Attributes:
        maker: derives the keys; True: from all arguments.
        until: a key is taken while its job is `waiting`, or until it has ended.
        policy: effect of a call whose key is taken.
        ttl: seconds after which a key is free in any case.
    """

    maker: KeyMaker | Literal[True]
    until: UniqueFor = "waiting"
    policy: UniquePolicy = "refuse"
    ttl: float = _DAY

    @property
    def replaces(self) -> bool:
        """Whether a later call replaces an earlier one."""
        return self.policy in ("replace", "debounce")


class UniqueCall(msgspec.Struct, frozen=True):
    """A call that must be the only one of its key.

    Attributes:
        name: the key in the state.
    """

    name: str
    rule: Uniqueness


def read_idempotency(options: Mapping[str, Any]) -> Idempotency:
    """Read a task's idempotency options.

    Raises:
        InvalidOption: a value is invalid.
    """
    maker = options.get("idempotency_key")
    scope = options.get("idempotency_scope")
    return Idempotency(
        maker=None if maker is None else read_key_maker(maker, option="idempotency_key"),
        scope=None if scope is None else check_key(scope, option="idempotency_scope"),
        ttl=_ttl(options, "idempotency_ttl"),
    )


def read_uniqueness(options: Mapping[str, Any]) -> Uniqueness | None:
    """Read a task's uniqueness options; None if its jobs are not unique.

    Raises:
        InvalidOption: a value is invalid, or options contradict each other.
    """
    maker = options.get("unique")
    if maker is None or maker is False:
        if others := sorted(options.keys() & {"unique_for", "unique_policy", "unique_ttl"}):
            raise InvalidOption(f"{', '.join(others)}: no effect without unique=")
        return None
    policy = _one_of(options, "unique_policy", get_args(UniquePolicy), "refuse")
    if policy == "debounce" and "delay" not in options:
        raise InvalidOption("unique_policy='debounce' needs a delay=: the time without further calls")
    if policy == "throttle" and ("unique_for" in options or "unique_ttl" not in options):
        raise InvalidOption(
            "unique_policy='throttle' needs a unique_ttl=, which alone determines how long a key is taken"
        )
    return Uniqueness(
        maker=True if maker is True else read_key_maker(maker, option="unique"),
        until=cast("UniqueFor", _one_of(options, "unique_for", get_args(UniqueFor), "waiting")),
        policy=cast("UniquePolicy", policy),
        ttl=_ttl(options, "unique_ttl"),
    )


def _ttl(options: Mapping[str, Any], option: str) -> float:
    if option not in options:
        return _DAY
    seconds = parse_duration(options[option], what=option).total_seconds()
    if not 0 < seconds <= 366 * _DAY:
        raise InvalidOption(f"{option}={options[option]!r}: must be more than 0 and at most a year")
    return seconds


def _one_of(options: Mapping[str, Any], option: str, choices: tuple[str, ...], default: str) -> str:
    value = options.get(option, default)
    if value not in choices:
        raise InvalidOption(f"{option}={value!r}: must be one of {', '.join(map(repr, choices))}")
    return cast("str", value)
