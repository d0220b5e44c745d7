"""Command options generated from the fields of a config class."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import Parameter

from taskmq.worker.config_option import options_of

F = TypeVar("F", bound=Callable[..., Any])


def with_config_options(config: type[msgspec.Struct], *, unset: Collection[str] = ()) -> Callable[[F], F]:
    """Replace the `**options` of a command by one option for each configurable field of a config.

    Args:
        unset: fields that are also settings: None if the option is not given.
    """

    def decorate(command: F) -> F:
        own = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        added = [_parameter(config, name, is_unset=name in unset) for name in options_of(config)]
        command.__signature__ = inspect.Signature([*own, *added], return_annotation=int)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return command

    return decorate


def config_values(config: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config's fields from a command's options; None leaves the default.

    Raises:
        InvalidOption: a value is invalid; the message names the option.
    """
    values: dict[str, Any] = {}
    for name, (_, option) in options_of(config).items():
        value = given.get(name)
        if value is None:
            continue
        what = f"--{name.replace('_', '-')}"
        values[name] = value if option.read is None else option.read(value, what=what)
        option.check(values[name], what)
    return values


def _parameter(config: type[msgspec.Struct], name: str, *, is_unset: bool) -> inspect.Parameter:
    kind, option = options_of(config)[name]
    default = getattr(config(), name)
    text = option.help
    if is_unset:
        text = f"{text} Default: $TASKMQ_{name.upper()}, else {option.show(default)}."
        default = None
    if option.read is not None:
        default = None if default is None else option.show(default)
        kind = str | None if default is None else str  # type: ignore[assignment]
    elif default is None:
        kind = kind | None  # type: ignore[assignment]
    flags = [f"--{name.replace('_', '-')}", *option.flags]
    # An option that is off by default needs no negative form.
    negative = "" if default is False else None
    note = Parameter(name=flags, help=text, negative=negative)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, note])
