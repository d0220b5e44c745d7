"""Messages that wait for their time."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

__all__ = ["DelayStore", "TakenMessage", "WaitingMessage"]


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that waits for its time in a `DelayStore`: what `taskmq.broker.Outgoing` has.

    Attributes:
        queue: a physical queue's name.
        due: milliseconds since the epoch.
    """

    job_id: str
    task: str
    queue: str
    due: int
    body: bytes
    content_type: str
    enqueued: int | None = None
    root: str | None = None
    headers: dict[str, str | int] = {}
    priority: int | None = None


class TakenMessage(msgspec.Struct, frozen=True):
    """A message in the hands of somebody who is about to publish it.

    Attributes:
        token: the store's own, new with every `put` and `swap` of the job.
    """

    message: WaitingMessage
    token: str


class DelayStore(Protocol):
    """Messages that wait for their time in the state instead of at the broker: these can be listed and changed.

    One message per job: a second `put` of the same job id replaces the first. A message leaves by `take`, publish,
    confirm and only then `done`: whoever dies in between leaves it to be taken again once the lease is over, so it
    can come twice and is never lost. It has no time to live. Every method but `listen` raises `StateUnavailable`
    when the store cannot be reached.
    """

    async def put(self, message: WaitingMessage) -> None:
        """Keep `message` until it is taken and done; durable as far as the store is when this returns."""
        ...

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        """Up to `limit` messages whose `due` is not after `now` (ms), the earliest first.

        None of them is given to anybody else within `lease` seconds.
        """
        ...

    async def done(self, taken: Sequence[TakenMessage]) -> None:
        """Forget messages that were taken and published; what was put or swapped in meanwhile stays."""
        ...

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
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

    async def count(self) -> int:
        """How many messages there are, those that are taken and not done among them."""
        ...

    async def find(self, job_id: str) -> WaitingMessage | None:
        """The message of a job, taken or not; None where there is none."""
        ...

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        """Up to `limit` messages, taken or not, the earliest due first; of one task, of some physical queues."""
        ...

    async def cancel(self, job_id: str) -> bool:
        """Take a message away; False where none waits (any more) or it is on its way already."""
        ...

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        """Put `changed` in the place of `found`, which is of the same job.

        False, and nothing is changed, where `found` does not wait any more, as it was found, or is on its way.
        """
        ...
