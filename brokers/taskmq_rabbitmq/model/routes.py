"""Routes: the exchange that leads to each physical queue, and the routing key there. Pure.

    taskmq              every queue of jobs, under its own name
    taskmq.jobs         invitations of stored jobs: `Q.jobs`, under its own name
    taskmq.reports      reports of stored jobs: `taskmq.reports.APP.N`, under its own name
    taskmq.dlx          dead letters: `Q.dlq` under `Q`, as RabbitMQ itself sends them; parked messages
    taskmq.unroutable   lost messages
    taskmq.dead.archive copies of dead letters

Each kind of queue has an exchange, because RabbitMQ grants the permission to publish by exchange: a user that may
write to the default exchange reaches every queue of the virtual host. The first three have no alternate exchange, so
`mandatory` proves that the queue itself accepted the message. `taskmq.dlx` has one: a letter whose queue is gone is
kept in `taskmq.unroutable`, and counts as routed. So a letter is published only once its queue is known to be bound.

The delay ladder leads to queues of jobs alone: no other queue is bound to its last exchange.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from taskmq.model.topology import (
    PARKING,
    UNROUTABLE,
    dead_letter_queue,
    is_jobs_queue,
    is_reports_queue,
    logical_queue,
)

WORK: Final = "taskmq"
INVITATIONS: Final = "taskmq.jobs"
REPORTS: Final = "taskmq.reports"
DEAD_LETTERS: Final = "taskmq.dlx"
ARCHIVE: Final = "taskmq.dead.archive"
"""Name of both the exchange and the stream of copies of dead letters."""

# A process publishes to few queues; but calls may name any.
_NAMES: Final = 4096
PROVEN: Final = frozenset({WORK, INVITATIONS, REPORTS})
"""Exchanges whose routed messages have reached their queue."""


class Route(NamedTuple):
    """The exchange and the key that lead to a physical queue.

    Attributes:
        exchange: its name.
        key: the routing key under which the queue is bound to it.
    """

    exchange: str
    key: str


@lru_cache(_NAMES)
def route_to(queue: str) -> Route:
    """Return the route of an immediate message to the physical `queue`."""
    if is_reports_queue(queue):
        return Route(REPORTS, queue)
    if is_jobs_queue(queue):
        return Route(INVITATIONS, queue)
    if queue in (UNROUTABLE, ARCHIVE):
        return Route(queue, queue)
    if queue == PARKING:
        return Route(DEAD_LETTERS, queue)
    if queue == dead_letter_queue(queue):
        return Route(DEAD_LETTERS, logical_queue(queue))
    return Route(WORK, queue)
