"""Facts of messages that RabbitMQ dead-lettered itself, in the form of a worker's letters. Pure.

A worker writes reason, origin and time on each letter. RabbitMQ's own letters (delivery limit reached, rejected,
expired, pushed out of a full queue) have them in `x-death`: one table for each queue that the message died in,
including the ladder's levels. A message that left the ladder and found its queue gone still has that queue's name as
its routing key, and its ways as a header. On RabbitMQ before 4.0 a publisher could write `x-death`, so it is never
trusted.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, cast

from taskmq.model.headers import DIED, ORIGIN, REASON
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue, is_reports_queue
from taskmq_rabbitmq.model import delay_ladder as delay

# Queues that messages only pass: the levels of the ladder, and the entrances of full queues.
_PASSAGES: Final = "taskmq."


def keeps_letters(queue: str) -> bool:
    """Return whether the physical `queue` holds letters rather than work."""
    return queue in (PARKING, UNROUTABLE) or is_reports_queue(queue) or queue == dead_letter_queue(queue)


def death_of(headers: Mapping[str | bytes, object], routing_key: str | None) -> dict[str, str | int]:
    """Return reason, origin and time (ms) of a letter that RabbitMQ wrote, as far as they are known."""
    deaths = list(_deaths(headers))
    died = max((time for _, _, time in deaths), default=None)
    when: dict[str, str | int] = {DIED: died} if died else {}
    # A message that died elsewhere had arrived: its ways are of an earlier wait.
    has_arrived = any(not queue.startswith(_PASSAGES) for queue, _, _ in deaths)
    target = None if routing_key is None or has_arrived else delay.destination(headers, routing_key)
    if target is not None:
        return {REASON: "unroutable", ORIGIN: target, **when}
    # The last one first; several in one second are in the order in which they occurred.
    for queue, reason, time in sorted(deaths, key=lambda death: -death[2]):
        if not queue.startswith(_PASSAGES):
            return {REASON: reason, ORIGIN: queue, **({DIED: time} if time else {})}
    for which in ("last", "first"):
        place, cause = headers.get(f"x-{which}-death-queue"), headers.get(f"x-{which}-death-reason")
        if isinstance(place, str) and isinstance(cause, str) and place and not place.startswith(_PASSAGES):
            return {REASON: cause, ORIGIN: place, **when}
    return {}


def _deaths(headers: Mapping[str | bytes, object]) -> Iterator[tuple[str, str, int]]:
    """Yield queue, reason and time of each readable entry."""
    found = headers.get("x-death")
    for entry in cast("list[object]", found) if isinstance(found, list) else ():
        if isinstance(entry, Mapping):
            table = cast("Mapping[object, object]", entry)
            queue, reason, time = table.get("queue"), table.get("reason"), table.get("time")
            if isinstance(queue, str) and queue and isinstance(reason, str):
                yield queue, reason, int(time.timestamp() * 1000) if isinstance(time, datetime) else 0
