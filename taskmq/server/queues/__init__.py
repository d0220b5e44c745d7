"""Queues over HTTP: queues, dead letters, workers and pools."""

from taskmq.server.queues.dead_letters import DEAD_LETTERS
from taskmq.server.queues.pools import POOLS
from taskmq.server.queues.queues import QUEUES
from taskmq.server.queues.workers import WORKERS

__all__ = ["QUEUE_HANDLERS"]

QUEUE_HANDLERS = (*QUEUES, *DEAD_LETTERS, *WORKERS, *POOLS)
