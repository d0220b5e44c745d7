"""Facts of a schedule as clients read and change them: its rule, policy and arguments."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.envelope import JSON
from taskmq.model.units import to_datetime
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.triggers import Cron, Every, Limited, Limits, Once, Trigger, cron, every, once

_OF_CRON: Final = ("tz", "seconds", "dst_gap", "dst_fold", "both_days")
_LIMITS: Final = frozenset(Limits.__annotations__)
# The fields that each kind of rule takes.
_RULES: Final[Mapping[str, frozenset[str]]] = {
    "cron": _LIMITS | set(_OF_CRON),
    "every": _LIMITS | {"phase", "anchor"},
    "at": frozenset(),
}
_PLAIN_CRON: Final = Cron("* * * * *")


def schedule_facts(entry: ScheduleEntry) -> dict[str, Any]:
    """Return the fields of `PUT /schedules/{name}` by the same names.

    Durations are seconds, instants are text. Fields without such a form are None: the task and arguments of a
    workflow, and the rule of a custom trigger.
    """
    args, kwargs = _plain_arguments(entry)
    return {
        "task": entry.definition or (entry.task.name if entry.workflow is None else None),
        **dict.fromkeys(("cron", "every", "at", "start", "end")),
        **{name: value for name, value in plain_rule(entry.trigger).items() if name != "tz"},
        **entry.policy.facts(),
        "job": dict(entry.job_options),
        "args": args,
        "kwargs": kwargs,
    }


def plain_rule(trigger: Trigger) -> dict[str, Any]:
    """Return the fields of `ScheduleRule` that are not defaults, as plain data."""
    return {name: _to_plain(value) for name, value in trigger_fields(trigger).items()}


def trigger_fields(trigger: Trigger) -> dict[str, Any]:
    """Return the arguments of `build_trigger` that are not defaults; of a custom trigger only its limits."""
    match trigger:
        case Limited():
            own: dict[str, Any] = {
                "start": None if trigger.start is None else to_datetime(trigger.start),
                "end": None if trigger.end is None else to_datetime(trigger.end),
                "max_runs": trigger.max_runs,
                "exclude": None if trigger.days_off is None else trigger.days_off.texts(),
            }
            return trigger_fields(trigger.trigger) | {name: value for name, value in own.items() if value is not None}
        case Cron():
            given = {name: getattr(trigger, name) for name in _OF_CRON}
            changed = {name: value for name, value in given.items() if value != getattr(_PLAIN_CRON, name)}
            return {"cron": trigger.expression, **changed}
        case Every():
            phase = {"phase": timedelta(milliseconds=trigger.phase)} if trigger.phase else {}
            return {"every": timedelta(milliseconds=trigger.period), **phase}
        case Once():
            return {"at": to_datetime(trigger.instant)}
        case _:
            return {}


def build_trigger(fields: Mapping[str, Any]) -> Trigger:
    """Build a rule from the fields that are given, of those that `ScheduleRule` has.

    Raises:
        InvalidOption: there is not exactly one of cron, every and at, a field does not fit it, or a value is invalid.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    kinds = given.keys() & _RULES.keys()
    if len(kinds) != 1:
        raise InvalidOption("give exactly one of cron, every and at")
    (kind,) = kinds
    rest = {name: value for name, value in given.items() if name != kind}
    if unfit := sorted(rest.keys() - _RULES[kind]):
        raise InvalidOption(f"{unfit[0]} has no effect with {kind}: leave it out")
    if kind == "cron":
        return cron(given[kind], **rest)
    return every(given[kind], **rest) if kind == "every" else once(given[kind])


def amend_trigger(present: Trigger, fields: Mapping[str, Any]) -> Trigger:
    """Return a schedule's rule with other fields. Its limits, and a cron expression's zone and options, are kept.

    Returns the same object if no field is given.

    Raises:
        InvalidOption: several rules are given; or as `build_trigger`.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if not given:
        return present
    if len(given.keys() & _RULES.keys()) > 1:
        raise InvalidOption("give at most one of cron, every and at")
    own = trigger_fields(present)
    if not given.keys().isdisjoint(("every", "phase", "anchor")):
        own.pop("phase", None)
    if others := given.keys() & _RULES.keys() - own.keys():
        kept = _RULES[min(others)]
        own = {name: value for name, value in own.items() if name in kept}
    return build_trigger(own | given)


def _to_plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return instant_text(value) if isinstance(value, datetime) else value


def _plain_arguments(entry: ScheduleEntry) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """Return the positional and keyword arguments as plain data."""
    if entry.workflow is not None:
        return None, None
    try:
        args, kwargs = entry.task.signature.encode(entry.args, dict(entry.kwargs), JSON)
    except TaskMQError:
        return None, None
    return msgspec.json.decode(args, type=list[Any]), msgspec.json.decode(kwargs, type=dict[str, Any])


def instant_text(moment: datetime) -> str:
    """Format an instant as the API does."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
