"""What is known of one field of a config: what it is for, how people write it, and what it may be.

A field says all of it once, as an annotation beside its type and default; the command line is made from that.
"""

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import parse_seconds, parse_size, size_text

__all__ = ["ConfigOption", "check_config_fields", "count_option", "options_of", "seconds_option", "size_option"]


class ConfigOption(msgspec.Struct, frozen=True):
    """How one field of `WorkerConfig` is read from the command line and shown.

    Attributes:
        help: what it is for, in a sentence or two.
        read: what is written on a command line, and how that is called in an error, to the field's value. None: it is
            written as its type says.
        show: the value as it is written; for defaults.
        flags: names on the command line besides the field's own.
        rule: what the value may be, in words.
        fits: whether a value is one of these. Not asked of None.
    """

    help: str
    read: Callable[..., Any] | None = None
    show: Callable[[Any], str] = str
    flags: tuple[str, ...] = ()
    rule: str = ""
    fits: Callable[[Any], bool] | None = None

    def check(self, value: object, what: str) -> None:
        """Return if the field may have the value.

        Raises:
            InvalidOption: it may not; says `what`.
        """
        if self.fits is not None and value is not None and not self.fits(value):
            raise InvalidOption(f"{what}: {self.rule}")


@functools.cache
def options_of(config: type[msgspec.Struct]) -> Mapping[str, tuple[type, ConfigOption]]:
    """The fields of a config that are options, by name and in their order: the type and what is known of each."""
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
    """Return if each field of a config has a value that it may have; a duration may be a text or a `timedelta`, too.

    Raises:
        InvalidOption: one has not; names it.
    """
    for name, (_, option) in options_of(type(config)).items():
        value = getattr(config, name)
        if option.read is _read_seconds and isinstance(value, str | timedelta):
            value = parse_seconds(value, what=name)
            msgspec.structs.force_setattr(config, name, value)
        option.check(value, f"{name}={value!r}")


def _read_seconds(text: str, *, what: str) -> float:
    """The seconds of a duration such as `30s`.

    Raises:
        InvalidOption: it is none.
    """
    return parse_seconds(text, what=what)


def _seconds_text(seconds: float) -> str:
    """Seconds as people write them: `30s`."""
    return f"{seconds:g}s"


def seconds_option(help: str, *, rule: str = "", fits: Callable[[Any], bool] | None = None) -> ConfigOption:  # noqa: A002 - what it is called in the option
    """An option in seconds, written as a duration."""
    return ConfigOption(help, read=_read_seconds, show=_seconds_text, rule=rule, fits=fits)


def size_option(help: str) -> ConfigOption:  # noqa: A002 - as above
    """An option in bytes, written as a size."""
    return ConfigOption(help, read=parse_size, show=size_text)


def count_option(help: str, *, flags: tuple[str, ...] = ()) -> ConfigOption:  # noqa: A002 - as above
    """An option that is a number from 1 on."""
    return ConfigOption(help, flags=flags, rule="at least 1", fits=lambda value: value >= 1)
