"""Queues as people name them: what is in them, and emptying them."""

from collections.abc import Sequence

from taskmq.app import TaskMQ
from taskmq.contracts.broker import QueueStats
from taskmq.errors import InvalidOption
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue

__all__ = ["list_queues", "purge_queue"]


async def list_queues(app: TaskMQ, names: Sequence[str] = ()) -> list[QueueStats]:
    """What is in queues, in all their priority classes or shards, and in their dead-letter queues; last what is lost.

    Args:
        names: of queues; none: all that the app knows.

    Raises:
        InvalidOption: no queue is named, and the app has none; or a queue cannot be called that.
        BrokerUnavailable: the broker could not be reached.
    """
    queues = [app.producer.queue(name) for name in names] or app.tasks.queues
    if not queues:
        raise InvalidOption("which queues? Name them with -Q a,b or their app with --app MODULE:ATTRIBUTE")
    physical = [name for queue in queues for name in (*queue.physical, dead_letter_queue(queue.name))]
    return await app.sessions.current().broker.stats([*physical, PARKING, UNROUTABLE])


async def purge_queue(app: TaskMQ, name: str) -> int:
    """Delete the waiting messages of a queue, in all its priority classes or shards; how many there were.

    Raises:
        QueueMissing: there is no such queue.
        BrokerUnavailable: the broker could not be reached.
    """
    broker = app.sessions.current().broker
    queue = app.producer.queue(name)
    there = [entry.queue for entry in await broker.stats(queue.physical)]
    # Without the others the queue is complete; without these it is missing.
    return sum([await broker.purge(physical) for physical in dict.fromkeys((*queue.always, *there))])
