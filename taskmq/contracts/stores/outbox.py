"""Outbox: messages that are kept until the broker has confirmed them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Outbox(Protocol[T]):
    """Messages in a store that must be published; `taskmq.durable.relay` publishes them.

    A message leaves by `take`, publish, confirm and only then `done`. If a taker dies in between, the message is
    taken again after the lease, so it can be published twice and is never lost. Every method except `listen` raises
    `StateUnavailable` if the store cannot be reached.
    """

    async def take(self, *, now: int, limit: int, lease: float) -> list[T]:
        """Take up to `limit` messages that are due at `now` (ms), the earliest first.

        No other taker gets them within `lease` seconds.
        """
        ...

    async def mark_done(self, taken: Sequence[T]) -> None:
        """Delete messages that were taken and published; a message that replaced one meanwhile stays."""
        ...

    async def give_back(self, taken: Sequence[T]) -> None:
        """Return messages that were taken and not published, so that others can take them immediately."""
        ...

    async def next_due(self) -> int | None:
        """Return when the earliest message that can be taken is due (ms); None if there is none."""
        ...

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` on this loop when `next_due` may have become earlier; return the function that ends it.

        There may be calls without a reason, and calls may be missed while the store cannot be reached: poll once a
        second, too.
        """
        ...
