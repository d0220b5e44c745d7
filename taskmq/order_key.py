"""From a call's arguments to the key by which its job is ordered."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from taskmq.codec import Signature
from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.topology import check_order_key

__all__ = ["OrderKey"]


class OrderKey:
    """What makes a task's keys.

    Args:
        maker: the name of a parameter whose value is the key (a string, an integer, a UUID, or a member of an Enum
            of those), or a function that is called as the task is and returns a string.
        owner: the task's name, for errors.

    Raises:
        InvalidOption: the task has no such parameter.
    """

    def __init__(
        self, maker: str | Callable[..., str], function: Callable[..., Any], signature: Signature, *, owner: str
    ) -> None:
        self._maker = maker
        self._signature = signature
        self._call = inspect.signature(function)
        self._owner = owner
        if isinstance(maker, str):
            names = [
                name
                for name, parameter in self._call.parameters.items()
                if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            ]
            if maker not in names:
                raise InvalidOption(
                    f"task {owner}: order_key={maker!r} is none of its parameters: {', '.join(names)}"
                )

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The key of a call with arguments that fit.

        Raises:
            InvalidArguments: they make no key.
        """
        try:
            return check_order_key(self._made(args, kwargs))
        except InvalidOption as error:
            raise InvalidArguments(f"task {self._owner}: {error}") from None
        except Exception as error:
            raise InvalidArguments(
                f"task {self._owner}: order_key cannot be made of these arguments: {type(error).__name__}"
            ) from error

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        if not isinstance(self._maker, str):
            return self._maker(*args, **kwargs)
        positional, named = self._signature.with_context((args, kwargs), None)
        call = self._call
        if provided := self._signature.provided:
            kept = [parameter for name, parameter in call.parameters.items() if name not in provided]
            call = call.replace(parameters=kept)
        bound = call.bind(*positional, **named)
        bound.apply_defaults()
        value = bound.arguments[self._maker]
        if isinstance(value, Enum):
            value = value.value
        # True and 1 are equal, and yet no two people would write them alike.
        return str(value) if isinstance(value, int | UUID) and not isinstance(value, bool) else value
