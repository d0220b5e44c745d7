"""Metadata of a config field: its purpose, its text form, and its valid values.

A field declares them once, as an annotation next to its type and default; the command line is generated from it.
"""

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import parse_seconds, parse_size, size_text


class ConfigOption(msgspec.Struct, frozen=True):
    """Command line form and validation of one field of `WorkerConfig`.

    Attributes:
        help: its purpose, in a sentence or two.
        read: parses the command line text into the field's value, given a name for errors. None: the text is parsed
            by the field's type.
        show: formats the value; for defaults.
        flags: more names on the command line.
        rule: the valid values, in words.
        fits: whether a value is valid. Not called for None.
    """

    help: str
    read: Callable[..., Any] | None = None
    show: Callable[[Any], str] = str
    flags: tuple[str, ...] = ()
    rule: str = ""
    fits: Callable[[Any], bool] | None = None

    def check(self, value: object, what: str) -> None:
        """Check that the field may have the value.

        Raises:
            InvalidOption: it may not; the message names `what`.
        """
        if self.fits is not None and value is not None and not self.fits(value):
            raise InvalidOption(f"{what}: {self.rule}")


@functools.cache
def options_of(config: type[msgspec.Struct]) -> Mapping[str, tuple[type, ConfigOption]]:
    """Return the fields of a config that are options, by name and in order, each with its type and metadata."""
    found: dict[str, tuple[type, ConfigOption]] = {}
    hints = get_type_hints(config, include_extras=True)
    for name in config.__struct_fields__:
        if get_origin(hints[name]) is Annotated:
            kind, *notes = get_args(hints[name])
            for note in notes:
                if isinstance(note, ConfigOption):
                    found[name] = (kind, note)
    return found


def check_config_fields(config: msgspec.Struct) -> None:
    """Check that each field of a config has a valid value; a duration may be a text or a `timedelta`, too.

    Raises:
        InvalidOption: one has not; the message names it.
    """
    for name, (_, option) in options_of(type(config)).items():
        value = getattr(config, name)
        if option.read is _read_seconds and isinstance(value, str | timedelta):
            value = parse_seconds(value, what=name)
            msgspec.structs.force_setattr(config, name, value)
        option.check(value, f"{name}={value!r}")


def _read_seconds(text: str, *, what: str) -> float:
    """Parse a duration such as `30s` into seconds.

    Raises:
        InvalidOption: the text is not a duration.
    """
    return parse_seconds(text, what=what)


def _seconds_text(seconds: float) -> str:
    """Format seconds for people: `30s`."""
    return f"{seconds:g}s"


def seconds_option(help: str, *, rule: str = "", fits: Callable[[Any], bool] | None = None) -> ConfigOption:  # noqa: A002 - what it is called in the option
    """Create an option in seconds, written as a duration."""
    return ConfigOption(help, read=_read_seconds, show=_seconds_text, rule=rule, fits=fits)


def size_option(help: str) -> ConfigOption:  # noqa: A002 - as above
    """Create an option in bytes, written as a size."""
    return ConfigOption(help, read=parse_size, show=size_text)


def count_option(help: str, *, flags: tuple[str, ...] = ()) -> ConfigOption:  # noqa: A002 - as above
    """Create an option that is a number, at least 1."""
    return ConfigOption(help, flags=flags, rule="at least 1", fits=lambda value: value >= 1)
