"""Rules that both brokers of this package share: capacities, and the queues that a declaration creates."""

from collections.abc import Iterable
from typing import Final

import msgspec

from taskmq.errors import PublishRejected
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue, jobs_queue, parcels_queue

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024


class Capacity(msgspec.Struct, frozen=True):
    """Limits of the ready messages in a physical queue; None: unlimited."""

    length: int | None = None
    bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        return self.length is not None or self.bytes is not None

    def refusal(self, queue: str, *, ready: int, held: int, size: int) -> PublishRejected | None:
        """Return the error for a message of `size` bytes if `ready` messages of `held` bytes leave no room, else
        None.
        """
        if self.length is not None and ready >= self.length:
            return PublishRejected(f"queue {queue!r} is full: {ready:,} messages wait, max_length is {self.length:,}")
        if self.bytes is not None and held + size > self.bytes:
            return PublishRejected(f"queue {queue!r} is full: {held:,} bytes wait, max_bytes is {self.bytes:,}")
        return None


def queues_of(queues: Iterable[WorkQueue]) -> dict[str, Capacity]:
    """Return the physical queues of `queues`, their dead-letter queues, and the two shared ones."""
    found = {PARKING: Capacity(), UNROUTABLE: Capacity()}
    for queue in queues:
        found |= dict.fromkeys(queue.physical, Capacity(queue.max_length, queue.max_bytes))
        found |= dict.fromkeys((jobs_queue(queue.name), parcels_queue(queue.name)), Capacity())
        found[dead_letter_queue(queue.name)] = Capacity()
    return found
