"""What both brokers of this package have in common: the size limit, and which queues a declaration makes."""

from collections.abc import Iterable
from typing import Final

from taskmq.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue

__all__ = ["MAX_MESSAGE_BYTES", "queues_of"]

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024


def queues_of(queues: Iterable[WorkQueue]) -> list[str]:
    """The physical queues of `queues`, their dead-letter queues, and the two that all share."""
    names = {PARKING: None, UNROUTABLE: None}
    for queue in queues:
        names.update(dict.fromkeys((*queue.physical, dead_letter_queue(queue.name))))
    return list(names)
