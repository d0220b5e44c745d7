"""Messages that are kept until the broker has confirmed them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Outbox"]

T = TypeVar("T")


class Outbox(Protocol[T]):
    """Messages that wait in a store to be published; `taskmq.durable.relay` is what publishes them.

    A message leaves by `take`, publish, confirm and only then `done`: a taker that dies in between leaves it to be
    taken again once the lease is over, so it can come twice and is never lost. Every method but `listen` raises
    `StateUnavailable` when the store cannot be reached.
    """

    async def take(self, *, now: int, limit: int, lease: float) -> list[T]:
        """Up to `limit` messages that are due at `now` (ms), the earliest first.

        None of them is given to another taker within `lease` seconds.
        """
        ...

    async def done(self, taken: Sequence[T]) -> None:
        """Forget messages that were taken and published; what took their place meanwhile stays."""
        ...

    async def give_back(self, taken: Sequence[T]) -> None:
        """Let others take at once what was taken and not published."""
        ...

    async def next_due(self) -> int | None:
        """When the earliest message is due that can be taken (ms); None when there is none."""
        ...

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` on this loop when `next_due` may have become earlier; the function that ends it.

        May call for nothing, and may miss a call while the store cannot be reached: look once a second as well.
        """
        ...
