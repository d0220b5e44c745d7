"""Annotations of a task's function. Pure."""

import inspect
import typing
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Any, Final, cast

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.values.objects import is_model
from taskmq.model.values.wire_form import decode_hook

_UNIONS: Final = (typing.Union, type(int | str))


def hints_of(function: Callable[..., Any], owner: str) -> dict[str, Any]:
    """Return the resolved annotations of a task's function.

    Args:
        owner: the task's name, for errors.

    Raises:
        InvalidOption: an annotation cannot be read.
        NameError: an annotation contains a name that is not defined yet.
    """
    target: Any = inspect.unwrap(function)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except AttributeError as error:
        # The module is still being imported: the name may be defined later.
        raise NameError(str(error)) from error
    except (SyntaxError, TypeError) as error:
        raise InvalidOption(f"task {owner}: an annotation cannot be read: {error}") from error
    # A bare None annotation stays None for msgspec; NoReturn has no values to decode.
    return {name: (Any if kind is typing.NoReturn or kind is typing.Never else kind) for name, kind in hints.items()}


def is_injected(kind: Any, injected: type) -> bool:
    """Return whether an annotation is that class or a union with it, with or without `Annotated`."""
    if typing.get_origin(kind) is Annotated:
        return is_injected(kind.__origin__, injected)
    if typing.get_origin(kind) in _UNIONS:
        return any(is_injected(each, injected) for each in typing.get_args(kind))
    return isinstance(kind, type) and issubclass(kind, injected)


def check_type(kind: Any, *, owner: str, what: str, refused: type) -> None:
    """Refuse a type that cannot be decoded from a message.

    Args:
        owner, what: owner and name of the type, for errors.
        refused: a class that never travels.

    Raises:
        InvalidOption: it is such a type.
    """
    from msgspec import inspect as types

    def find_unsupported(info: Any, seen: set[int]) -> str | None:
        if id(info) in seen:
            return None
        seen.add(id(info))
        if isinstance(info, types.StructType) and issubclass(info.cls, refused):
            return info.cls.__qualname__
        if isinstance(info, types.CustomType):
            custom = cast("type[object]", info.cls)
            is_known = custom is object or issubclass(custom, PurePath) or is_model(custom)
            return None if is_known else custom.__qualname__
        for name in ("type", "item_type", "key_type", "value_type", "item_types", "types", "fields"):
            children: Any = getattr(info, name, None)
            group: list[Any] = list(children) if hasattr(children, "__iter__") else [children]
            for child in group:
                if isinstance(child, types.Type | types.Field) and (found := find_unsupported(child, seen)):
                    return found
        return None

    if kind is Any or kind in (int, str, float, bool, None, dict, list, bytes):
        return
    try:
        found = find_unsupported(types.type_info(kind), set())
        msgspec.json.Decoder(kind, dec_hook=decode_hook)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidOption(f"task {owner}: {what} cannot be decoded from a message: {error}") from error
    if found:
        raise InvalidOption(
            f"task {owner}: {what} is a {found}, which cannot be decoded from a message: use a dataclass, a "
            "msgspec Struct, a TypedDict, a pydantic model or plain types"
        )
