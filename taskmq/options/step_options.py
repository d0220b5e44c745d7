"""Options of a step's jobs as JSON, as a stored workflow contains them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from taskmq.errors import InvalidOption
from taskmq.model.retry import RunOptions
from taskmq.model.units import instant_text
from taskmq.options.plans import CallPlan

_PLAIN: Final = ("queue", "priority", "order_key", "idempotency_key", "tenant", "meta")
_SPANS: Final = ("delay", "expires")
_INSTANTS: Final = {"eta": "eta", "expires_at": "expires"}
_DATE: Final = len("2027-01-31")
_NONE: Final = CallPlan()


def encode_options(plan: CallPlan, own: CallPlan) -> dict[str, Any]:
    """Return all options of a call, so that programs without the task can make its job; `decode_options` reads them.

    Args:
        plan: of the call.
        own: of the task.
    """
    found: dict[str, Any] = {
        name: value
        for name in _PLAIN
        if (value := getattr(plan, name)) != getattr(_NONE, name) or value != getattr(own, name)
    }
    found |= {name: span / 1000 for name in _SPANS if (span := getattr(plan, name)) is not None}
    for name, option in _INSTANTS.items():
        if (instant := getattr(plan, name)) is not None:
            found[option] = instant_text(instant)
    return found if plan.run is None else found | _encode_run(plan.run)


def _encode_run(run: RunOptions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if run.timeout is not None:
        found["timeout"] = run.timeout / 1000
    if run.max_attempts is not None:
        found["max_attempts"] = run.max_attempts
    pace: dict[str, Any] = {
        name: value for name in ("backoff", "jitter") if (value := getattr(run, name)) is not None
    }
    pace |= {name: span / 1000 for name in ("base", "cap") if (span := getattr(run, name)) is not None}
    if pace:
        found["retry"] = pace
    if run.once:
        found["guarantee"] = "at_most_once"
    return found


def decode_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a step as options of a call: instants in ISO 8601 become datetimes.

    Raises:
        InvalidOption: an instant cannot be read.
    """
    found = dict(options)
    for name in ("eta", "expires"):
        value = found.get(name)
        if isinstance(value, str) and (name == "eta" or len(value) > _DATE):
            try:
                found[name] = datetime.fromisoformat(value)
            except ValueError:
                raise InvalidOption(f"{name}={value!r} is not an instant in ISO 8601") from None
    return found
