"""JSON Schemas of values: arguments, parameters and forms."""

from collections.abc import Mapping
from typing import Any

from taskmq.errors import UnsupportedFeature


def open_validator(schema: Mapping[str, Any], *, purpose: str, checks_formats: bool = True) -> Any:
    """Return a validator of a JSON Schema, which never reads other documents.

    Its messages do not contain the values, which may be secret and large. Its patterns match in linear time.

    Args:
        purpose: what it is used for, for the error.
        checks_formats: whether it checks the keyword `format`.

    Raises:
        ValueError: the schema is not one.
        UnsupportedFeature: the schema validator is not installed.
    """
    try:
        from jsonschema_rs import Draft202012Validator, RegexOptions
    except ImportError as error:
        raise UnsupportedFeature(f"{purpose} need the schema validator: run pip install 'taskmq[schemas]'") from error
    return Draft202012Validator(
        dict(schema), mask="the value", validate_formats=checks_formats, offline=True, pattern_options=RegexOptions()
    )


def find_flaw(schema: Mapping[str, Any], *, purpose: str) -> str:
    """Return why a JSON Schema cannot be used; "" if it can.

    Raises:
        UnsupportedFeature: the schema validator is not installed.
    """
    try:
        open_validator(schema, purpose=purpose)
    except ValueError as error:
        return f"not a JSON Schema: {str(error).partition(chr(10))[0]}"
    return ""


def find_misfit(schema: Mapping[str, Any], value: Any, *, purpose: str, checks_formats: bool = True) -> str:
    """Return why a value does not fit a JSON Schema; "" if it does.

    Args:
        purpose, checks_formats: as of `open_validator`.

    Raises:
        ValueError, UnsupportedFeature: as `open_validator`.
    """
    validator = open_validator(schema, purpose=purpose, checks_formats=checks_formats)
    error = next(validator.iter_errors(value), None)
    return "" if error is None else str(error.message)
