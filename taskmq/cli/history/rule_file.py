"""Files of alert rules, for `taskmq alert apply`."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.history.alerts import METRICS, AlertRule
from taskmq.model.units import did_you_mean


def read_rule_file(file: Path) -> list[AlertRule]:
    """Return the rules in a file.

    Raises:
        InvalidOption: the file cannot be read, or one of the rules is malformed.
    """
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(f"{file}: {error}") from error
    values: object = content.get("rule", [])
    if set(content) - {"rule", "channels"} or not isinstance(values, list):
        raise InvalidOption(f"{file}: only [[rule]] tables and channels are allowed")
    common = {"channels": content["channels"]} if "channels" in content else {}
    return read_rules([common | rule for rule in cast("list[dict[str, Any]]", values)])


def read_rules(values: Sequence[Any]) -> list[AlertRule]:
    """Parse the rules of a file.

    Raises:
        InvalidOption: one of them is malformed.
    """
    found: list[AlertRule] = []
    for value in values:
        try:
            found.append(msgspec.convert(value, AlertRule))
        except msgspec.ValidationError as error:
            raise InvalidOption(f"rule {len(found) + 1} of the file: {_describe_fault(value, error)}") from error
    return found


def _describe_fault(value: Any, error: msgspec.ValidationError) -> str:
    """Describe the fault of a rule, with the nearest valid name."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        known = [field.encode_name for field in msgspec.structs.fields(AlertRule)]
        if unknown := [name for name in fields if name not in known]:
            return f"there is no field {unknown[0]!r}: {did_you_mean(unknown[0], known)}"
        if isinstance(metric := fields.get("metric"), str) and metric not in METRICS:
            return f"there is no metric {metric!r}: {did_you_mean(metric, METRICS)}"
    return str(error)
