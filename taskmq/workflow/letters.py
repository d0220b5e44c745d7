"""Dead letters of a workflow's steps, which a redrive makes void."""

import asyncio
from collections.abc import Collection
from typing import Final

from taskmq.contracts.broker import Broker, Delivery
from taskmq.errors import MalformedMessage, QueueMissing
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import decode_envelope
from taskmq.model.keys import flow_job_id
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue

__all__ = ["remove_letters"]

_PIECE: Final = 500
_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.2


async def remove_letters(
    broker: Broker, flow_id: str, *, run: int, queues: Collection[str], expected: int, within: float
) -> int:
    """Acknowledge letters of the flow's steps that are older than its run `run`; return their number.

    Letters of other jobs, and of steps that died in this run, keep their position and order. A worker publishes a
    letter after the step's end is recorded, so one may arrive a moment later: if there are fewer than `expected`, it
    checks again for `within` seconds.

    Args:
        queues: public names of the steps' queues.

    Raises:
        BrokerUnavailable: the broker could not be reached; some may be removed.
    """
    names = dict.fromkeys([*(dead_letter_queue(queue) for queue in queues), PARKING, UNROUTABLE])
    loop = asyncio.get_running_loop()
    deadline, backoff = loop.time() + within, Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    count = 0
    while True:
        for found in await broker.stats(names):
            if found.ready:
                count += await _remove_from(broker, found.queue, found.ready, flow_id, run)
        if count >= expected or loop.time() >= deadline:
            return count
        await asyncio.sleep(backoff.next())


async def _remove_from(broker: Broker, queue: str, depth: int, flow_id: str, run: int) -> int:
    count = looked = 0
    try:
        async with broker.browse(queue) as look:
            # Letters that arrive meanwhile are ignored.
            while looked < depth and (piece := await look.take(min(_PIECE, depth - looked))):
                looked += len(piece)
                for delivery in piece:
                    if _is_void(delivery, flow_id, run):
                        delivery.ack()
                        count += 1
    except QueueMissing:
        return count
    return count


def _is_void(delivery: Delivery, flow_id: str, run: int) -> bool:
    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return False
    flow, _, key = (envelope.flow or "").rpartition("/")
    earlier = {flow_job_id(flow_id, key, number) for number in range(run)}
    return flow == flow_id and envelope.id in earlier
