"""Messages that are not yet due."""

from collections.abc import Collection
from typing import Protocol

import msgspec

from taskmq.contracts.stores.outbox import Outbox


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message in a `DelayStore` that is not yet due, with the fields of `taskmq.contracts.broker.Outgoing`.

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
    """A message that a relay has taken and is about to publish.

    Attributes:
        token: assigned by the store, new with every `put` and `swap` of the job.
    """

    message: WaitingMessage
    token: str


class DelayStore(Outbox[TakenMessage], Protocol):
    """Messages that wait in the state until they are due, instead of at the broker: these can be listed and changed.

    There is one message per job: a second `put` of the same job id replaces the first. What was put or swapped in
    after `take` survives `done`. It has no time to live.
    """

    async def put(self, message: WaitingMessage) -> None:
        """Store `message` until it is taken and done; as durable as the store when this returns."""
        ...

    async def count(self) -> int:
        """Return the number of messages, including those that are taken and not done."""
        ...

    async def find(self, job_id: str) -> WaitingMessage | None:
        """Return the message of a job, taken or not; None if there is none."""
        ...

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        """Return up to `limit` messages, taken or not, the earliest due first; of one task, or some queues."""
        ...

    async def cancel(self, job_id: str) -> bool:
        """Remove a message; return False if none waits (any more) or it is being published."""
        ...

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        """Replace `found` by `changed`, which is of the same job.

        Returns False, and changes nothing, if `found` no longer waits unchanged, or is being published.
        """
        ...
