"""Diagnostics of a broker and a worker for a failed campaign."""

import asyncio
from urllib.parse import unquote, urlsplit

from taskmq.worker.worker import Worker
from taskmq_rabbitmq import RabbitMQBroker
from tests.servers import RabbitMQ

_QUEUES = ("name", "messages_ready", "messages_unacknowledged", "consumers", "state")
_CHANNELS = ("connection", "number", "consumer_count", "messages_unacknowledged", "prefetch_count")


def broker_scene(node: RabbitMQ, url: str) -> str:
    """Return the node's current counts of every queue, including the ladder, and of every channel."""
    vhost = unquote(urlsplit(url).path.removeprefix("/")) or "/"
    queues = [line.split("\t") for line in node.ctl("-q", "list_queues", "-p", vhost, *_QUEUES).splitlines()]
    lines = ["\t".join(line) for line in queues if line[1:4] != ["0", "0", "0"]]
    channels = node.ctl("-q", "list_channels", "-p", vhost, *_CHANNELS)
    consumers = node.ctl("-q", "list_consumers", "-p", vhost)
    return "\n".join([f"queues that are not empty, of {len(queues)}:", *lines, "channels:", channels, consumers])


def worker_scene(worker: Worker, broker: RabbitMQBroker, loop: asyncio.AbstractEventLoop) -> str:
    """Return the current activity of a worker on another thread's loop."""
    feeds = [
        f"{each!r} unsettled={each._feed.unsettled} received={each._feed.received} open={not each._feed.ended}"
        for consumer in broker._consumers
        for each in consumer._subscriptions
        if each._feed is not None
    ]
    tasks = [f"{task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks(loop)]
    assert worker._dispatcher is not None
    suspects = worker._dispatcher.quarantine
    assert suspects is not None
    quarantine = f"closed={suspects.is_closed} counted={[*suspects._counted]} in line={len(suspects._in_line)}"
    broker_line = f"{broker!r}, {broker.stale_settles} late settlings"
    return "\n".join([f"{worker.status()}", quarantine, broker_line, *feeds, *tasks])
