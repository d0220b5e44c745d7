"""Handlers of the API: what each is called in the API's description, and which permission it needs."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from litestar import delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler

from taskmq.api.values import API
from taskmq.model.identity import Permission

_METHODS: Final = {"GET": get, "POST": post, "PUT": put, "PATCH": patch, "DELETE": delete}
_COMPATIBLE: Final = "compatible names"

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Handlers:
    """Handlers of related operations, in the order of their declaration.

    Args:
        tag: heading of the operations in the API's description.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._handlers: list[HTTPRouteHandler] = []

    def __iter__(self) -> Iterator[HTTPRouteHandler]:
        return iter(self._handlers)

    def handle(
        self,
        pattern: str,
        operation_id: str,
        permission: Permission | str,
        summary: str,
        *,
        status_code: int = 200,
        tag: str = "",
        is_compatible: bool = False,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Serve an operation with the function below.

        Args:
            pattern: the method and the path below the API's, such as `GET /pools/{name}`.
            permission: what the caller needs, or `PUBLIC`.
            tag: another heading than the group's.
            is_compatible: whether this is one of the API's original paths, which do not begin with the version and
                have a heading of their own.
            options: options of Litestar, and those that guard, middleware and client read. With `repeats`, the client
                repeats the request if its outcome is unknown, as it does every `GET`.
        """
        method, _, path = pattern.partition(" ")
        declare = _METHODS[method](
            path if is_compatible else API + re.sub(r"\{(\w+)\}", r"{\1:str}", path),
            operation_id=operation_id,
            permission=permission,
            summary=summary,
            status_code=status_code,
            tags=[tag or (_COMPATIBLE if is_compatible else self._tag)],
            **options,
        )

        def add(handler: Handler) -> Handler:
            self._handlers.append(declare(handler))
            return handler

        return add
