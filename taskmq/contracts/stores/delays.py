"""Messages that wait for their time."""

from collections.abc import Collection
from typing import Protocol

import msgspec

from taskmq.contracts.stores.outbox import Outbox

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
    """A message in the hands of a relay that is about to publish it.

    Attributes:
        token: the store's own, new with every `put` and `swap` of the job.
    """

    message: WaitingMessage
    token: str


class DelayStore(Outbox[TakenMessage], Protocol):
    """Messages that wait for their time in the state instead of at the broker: these can be listed and changed.

    One message per job: a second `put` of the same job id replaces the first, and what was put or swapped in after
    `take` stays when that is done. It has no time to live.
    """

    async def put(self, message: WaitingMessage) -> None:
        """Keep `message` until it is taken and done; durable as far as the store is when this returns."""
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
