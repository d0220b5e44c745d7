"""Parsers of typed command-line values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, get_args

import msgspec

from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption
from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.units import parse_duration, to_datetime

_CONDITIONS: Final[tuple[DependencyCondition, ...]] = get_args(DependencyCondition)


def json_value(option: str, text: str, kind: type[list[object]] | type[dict[str, object]]) -> msgspec.Raw:
    """Return the text if it is JSON of this kind.

    Raises:
        InvalidOption: it is not; the message names the option.
    """
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        form = """'[1, "two"]'""" if kind is list else """'{"name": "value"}'"""
        raise InvalidOption(f"{option} is not valid JSON, write for example {form}: {error}") from None
    if not isinstance(value, kind):
        raise InvalidOption(f"{option} must be a JSON {'array' if kind is list else 'object'}")
    return msgspec.Raw(text.encode())


def array_of(option: str, text: str) -> list[Any]:
    """Parse a JSON array.

    Raises:
        InvalidOption: the text is not an array; the message names the option.
    """
    return msgspec.json.decode(json_value(option, text, list), type=list[Any])


def object_of(option: str, text: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        InvalidOption: the text is not an object; the message names the option.
    """
    return msgspec.json.decode(json_value(option, text, dict), type=dict[str, Any])


def instant_of(option: str, text: str) -> datetime:
    """Parse an instant: ISO 8601 with a zone, `now`, or an offset from now such as `+1h` and `-24h`.

    Raises:
        InvalidOption: the text is none of these; the message names the option.
    """
    try:
        if text == "now" or text[:1] in {"+", "-"}:
            return _from_now(text)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, InvalidOption):
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidOption(
            f"{option} {text!r} is not an instant: write for example 2027-01-31T09:00+01:00, or +1h from now"
        )
    return found


def milliseconds_of(option: str, text: str) -> int:
    """Parse an instant as milliseconds since the epoch; raises as `instant_of` does."""
    return round(instant_of(option, text).timestamp() * 1000)


def _from_now(text: str) -> datetime:
    now = to_datetime(SystemClock().now_ms())
    if text == "now":
        return now
    span = parse_duration(text[1:])
    return now + span if text[0] == "+" else now - span


def label_of(text: str, *, option: str = "--label") -> tuple[str, str]:
    """Parse a label into its name and value.

    Raises:
        InvalidOption: the text is not a label; the message names the option.
    """
    name, parted, value = text.partition("=")
    if not parted or not name:
        raise InvalidOption(f"{option} {text!r}: must be NAME=VALUE")
    return name, value


def any_value(text: str) -> Any:
    """Parse a JSON value; return a text that is not JSON as it is."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def param_of(text: str) -> tuple[str, Any]:
    """Parse a parameter into its name and value: JSON, or a text.

    Raises:
        InvalidOption: the text has no `=`.
    """
    name, value = label_of(text, option="--param")
    return name, any_value(value)


def node_labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse labels that a node must have.

    Raises:
        InvalidOption: a text is not a label.
    """
    return dict(label_of(text, option="--node-label") for text in texts)


def upstream_from(text: str) -> tuple[str, DependencyCondition]:
    """Parse a dependency, given as `ID` or `CONDITION=ID`: a job to wait for, and how it must end."""
    for condition in _CONDITIONS:
        if text.startswith(f"{condition}="):
            return text.removeprefix(f"{condition}="), condition
    return text, "succeeded"
