"""Queues over HTTP: what is in them, their dead letters, the workers that take from them, and the shares of pools."""

from taskmq.server.queues.dead_letters import DEAD_LETTERS
from taskmq.server.queues.pools import POOLS
from taskmq.server.queues.queues import QUEUES
from taskmq.server.queues.workers import WORKERS

__all__ = ["QUEUE_HANDLERS"]

QUEUE_HANDLERS = (*QUEUES, *DEAD_LETTERS, *WORKERS, *POOLS)
