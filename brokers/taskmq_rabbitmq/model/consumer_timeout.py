"""RabbitMQ's consumer timeout: the time until the broker takes an unsettled delivery back. Pure.

A task that still runs when its delivery is taken back runs twice at a time; and heartbeats already show whether its
process is alive. So a consumer that may choose the timeout chooses one that is long enough.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.contracts.broker import Subscription
from taskmq.model.topology import is_shard, logical_queue

# The default of every RabbitMQ up to 4.3.
DEFAULT_SECONDS: Final = 30 * 60.0
_PER_CONSUMER: Final = (4, 3)
_PER_QUEUE: Final = (3, 12)
_LONGEST_SECONDS: Final = 30 * 24 * 3600.0


def consume_arguments(longest: float | None, version: tuple[int, ...] | None) -> Mapping[str, int]:
    """Return arguments of `basic.consume` for a quorum queue whose deliveries take up to `longest` seconds.

    The broker counts from the delivery, so that the wait for a free slot counts too.
    """
    if version is None or version < _PER_CONSUMER:
        return {}
    seconds = _LONGEST_SECONDS if longest is None else min(2 * longest + DEFAULT_SECONDS, _LONGEST_SECONDS)
    return {"x-consumer-timeout": int(seconds * 1000)}


def settle_within(longest: float | None, version: tuple[int, ...] | None, *, of_nodes: float | None) -> float | None:
    """Return the seconds after which the broker takes a delivery back.

    Args:
        of_nodes: the nodes' timeout if a consumer cannot choose it; None: no limit.
    """
    told = consume_arguments(longest, version)
    return told["x-consumer-timeout"] / 1000 if told else of_nodes


def warning(
    subscriptions: Sequence[Subscription],
    version: tuple[int, ...] | None,
    *,
    of_nodes: float | None = DEFAULT_SECONDS,
) -> str | None:
    """Return the warning for the start of a consumer; None if the broker's limit is long enough."""
    if version is None or version >= _PER_CONSUMER or of_nodes is None:
        return None
    late = [one for one in subscriptions if not one.is_punctual and (one.longest is None or one.longest > of_nodes)]
    if not late:
        return None
    queues = dict.fromkeys(logical_queue(one.queue) for one in late)
    # Jobs of ordered queues are not transferred to the state: the next message must not start before.
    state = "" if all(is_shard(one.queue) for one in late) else "or the app a state, "
    return (
        f"tasks of {', '.join(map(repr, queues))} may run for more than {of_nodes / 60:g} minutes: RabbitMQ "
        "then gives their messages to another worker, unless its consumer timeout was raised. Give the tasks a "
        f"shorter `timeout`, {state}or {remedy(version)}"
    )


def remedy(version: tuple[int, ...] | None) -> str:
    """Return how an operator raises the limit."""
    if version is not None and version < _PER_QUEUE:
        return "set `consumer_timeout` (milliseconds) in rabbitmq.conf on every node"
    if version is not None and version >= _PER_CONSUMER:
        return "give the task a longer `timeout`, from which the limit is derived"
    return "set a policy with `consumer-timeout` (milliseconds) on the queue"
