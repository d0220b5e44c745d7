"""Keys derived from a call's arguments: by a parameter, a template, or a function."""

import hashlib
import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from enum import Enum
from typing import Any, Final, Literal, cast
from uuid import UUID

import msgspec

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.codec import Signature
from taskmq.model.keys import is_derived_id
from taskmq.model.values.canonical_form import canonical_json

KeyMaker = str | Callable[..., str]
"""Name of a parameter, a template such as "order:{order_id}", or a function with the task's parameters."""

KEY_LIMIT: Final = 255


def check_key(key: object, *, option: str) -> str:
    """Return `key` if it is a valid key.

    Raises:
        InvalidOption: it is not a text of 1 to 255 bytes, or begins like derived ids, which are keys as well.
    """
    if not isinstance(key, str) or not 0 < len(key.encode(errors="replace")) <= KEY_LIMIT:
        raise InvalidOption(f"{option}: {key!r:.80} must be a string of 1 to {KEY_LIMIT} bytes")
    if is_derived_id(key):
        raise InvalidOption(f"{option}: {key[:80]!r} has a prefix reserved for keys of schedules and events")
    return key


def read_key_maker(value: object, *, option: str) -> KeyMaker:
    """Return `value` if it can derive keys.

    Raises:
        InvalidOption: it cannot.
    """
    if isinstance(value, str) and value:
        return value
    if callable(value):
        return cast("KeyMaker", value)
    raise InvalidOption(
        f"{option}={value!r}: must be the name of a parameter, a template such as 'order:{{order_id}}', or a "
        "function of the arguments"
    )


class ArgumentKey:
    """Derives a task's keys from the arguments.

    Args:
        maker: the name of a parameter, a template with names of parameters in braces (also their attributes and
            items), or a function that is called like the task and returns a string; True: a digest of all arguments.
            A value in a key must be a string, an integer, a UUID, a date, or a member of an Enum of those.
        owner: the task's name, for errors.
        option: name of the option, for errors.

    Raises:
        InvalidOption: the task has no such parameter, or the template cannot be read.
    """

    def __init__(
        self,
        maker: KeyMaker | Literal[True],
        function: Callable[..., Any],
        signature: Signature,
        *,
        owner: str,
        option: str,
    ) -> None:
        self._maker = maker
        self._signature = signature
        self._call = inspect.signature(function)
        self._owner = owner
        self._option = option
        if isinstance(maker, str):
            self._check_names(maker)

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key of a call with valid arguments.

        Raises:
            InvalidArguments: they yield no key.
        """
        try:
            return check_key(self._make(args, kwargs), option=self._option)
        except InvalidOption as error:
            raise InvalidArguments(f"task {self._owner}: {error}") from None
        except Exception as error:
            raise InvalidArguments(
                f"task {self._owner}: {self._option} cannot be derived from these arguments: {type(error).__name__}"
            ) from error

    def plain_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return the key of an encoded call; None if only the task's code can derive it.

        It can be derived if all parameters in it are of type `str` or `int`.
        """
        if not isinstance(self._maker, str) or not self._signature.is_resolved:
            return None
        known = self._signature.parameters
        kinds = {each.name: each.kind for each in (*known.positional, *known.named)}
        try:
            arguments = self._arguments(args, kwargs)
            for name in _names_in(self._maker):
                if kinds.get(name) not in (str, int) or type(arguments[name]) is not kinds[name]:
                    return None
            return self.of(args, kwargs)
        except (TypeError, InvalidArguments):
            return None

    def _check_names(self, maker: str) -> None:
        names = [
            name
            for name, parameter in self._call.parameters.items()
            if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ]
        try:
            wanted = _names_in(maker)
        except ValueError as error:
            raise InvalidOption(f"task {self._owner}: {self._option}={maker!r}: {error}") from None
        if not wanted:
            raise InvalidOption(
                f"task {self._owner}: {self._option}={maker!r} is the same for all calls: name a parameter in braces"
            )
        for name in wanted:
            if name.split(".")[0].split("[")[0] not in names:
                what = f"{self._option}={maker!r}"
                said = what if name == maker else f"{what}: {name!r}"
                raise InvalidOption(f"task {self._owner}: {said} is none of its parameters: {', '.join(names)}")

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        maker = self._maker
        if not isinstance(maker, str | bool):
            return maker(*args, **kwargs)
        arguments = self._arguments(args, kwargs)
        if isinstance(maker, bool):
            # Each separately, because their order is that of the parameters.
            parts = {name: msgspec.Raw(canonical_json(value)) for name, value in arguments.items()}
            return hashlib.sha256(msgspec.json.encode(parts), usedforsecurity=False).hexdigest()
        return _TEMPLATES.vformat(maker, (), arguments) if "{" in maker else _stable(arguments[maker])

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        positional, named = self._signature.with_context((args, kwargs), None)
        call = self._call
        if provided := self._signature.provided:
            kept = [parameter for name, parameter in call.parameters.items() if name not in provided]
            call = call.replace(parameters=kept)
        bound = call.bind(*positional, **named)
        bound.apply_defaults()
        return bound.arguments


class OrderKey(ArgumentKey):
    """Derives a task's `order_key`s; see `ArgumentKey`."""

    def __init__(self, maker: KeyMaker, function: Callable[..., Any], signature: Signature, *, owner: str) -> None:
        super().__init__(maker, function, signature, owner=owner, option="order_key")


class _Templates(string.Formatter):
    """Refuses fields that differ between processes."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the base's
        return kwargs[str(key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        value = _stable(value)
        if not isinstance(value, str):
            raise TypeError(f"{type(value).__name__} has no form in a key")
        return format(value, format_spec)


_TEMPLATES: Final = _Templates()


def _names_in(maker: str) -> list[str]:
    """Return the names in a template's braces; a maker without braces is a name itself.

    Raises:
        ValueError: it cannot be parsed.
    """
    if "{" not in maker and "}" not in maker:
        return [maker]
    return [name for _, name, _, _ in string.Formatter().parse(maker) if name is not None]


def _stable(value: object) -> object:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, date):
        return value.isoformat()
    # True and 1 are equal, yet written differently.
    return str(value) if isinstance(value, int | UUID) and not isinstance(value, bool) else value
