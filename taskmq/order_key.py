"""From a call's arguments to the key by which its job is ordered."""

from collections.abc import Callable
from typing import Any

from taskmq.argument_key import ArgumentKey, KeyMaker
from taskmq.codec import Signature

__all__ = ["OrderKey"]


class OrderKey(ArgumentKey):
    """What makes a task's `order_key`s; see `ArgumentKey`."""

    def __init__(self, maker: KeyMaker, function: Callable[..., Any], signature: Signature, *, owner: str) -> None:
        super().__init__(maker, function, signature, owner=owner, option="order_key")
