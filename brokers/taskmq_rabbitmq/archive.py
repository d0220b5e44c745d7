"""Archive of dead letters: a stream that keeps a copy of each, whatever happens to the letter itself.

It is enabled by `?archive=30d` in the URL of those who write letters, which are the workers. The copy is published
separately: bound to the same exchange, the stream would make a letter look routed whose dead-letter queue is gone. A
failed copy is logged and delays nothing. So the archive is for looking back, and the dead-letter queue stays
authoritative. It does not contain letters that RabbitMQ writes itself (delivery limit, for example).

Archived letters can be read repeatedly, from any offset, and are removed by age and size only. Both limits are set
when the stream is declared; later a policy changes them (`max-age`, `max-length-bytes`).
"""

import asyncio
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.broker import Delivery, Outgoing
from taskmq.contracts.loggers import contained_logger
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq_rabbitmq.amqp.channels import ChannelRefused
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed, RabbitMQDelivery
from taskmq_rabbitmq.declare.requests import refusal
from taskmq_rabbitmq.model.routes import ARCHIVE
from taskmq_rabbitmq.publish.publisher import Publisher

OFFSET: Final = "x-stream-offset"

_log = contained_logger(__name__)
_QUIET: Final = 0.5
_PATIENCE: Final = 10.0
_MOST: Final = 10_000
_REMEDY: Final = "no worker keeps an archive of dead letters yet; they do with ?archive=30d in their broker URL"


def keep_copy(publisher: Publisher, letter: Outgoing, *, timeout: float, limit: int) -> None:
    """Publish a copy of a dead letter to the archive, without waiting."""

    def look_at(future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("job %s: archiving its dead letter failed: %s", letter.job_id, error)

    publisher.publish(replace(letter, queue=ARCHIVE), timeout=timeout, limit=limit).add_done_callback(look_at)


async def read_archive(
    connection: Connection, *, offset: int, limit: int, tag: str, counts: DeliveryCounts
) -> list[tuple[int, Delivery]]:
    """See `taskmq.contracts.broker.Archiving`."""
    found: list[tuple[int, Delivery]] = []
    arrived = asyncio.Event()

    def take(delivery: RabbitMQDelivery) -> None:
        place = delivery.headers.get(OFFSET)
        if isinstance(place, int) and place >= offset and len(found) < limit:
            found.append((place, delivery))
        # Each is acknowledged; otherwise nothing would follow the first window.
        delivery.ack()
        arrived.set()

    channel = await connection.channel()
    feed = Feed(channel, ARCHIVE, tag=tag, deliver=take, counts=counts, loop=asyncio.get_running_loop())
    try:
        async with asyncio.timeout(_PATIENCE):
            await feed.start(min(limit, _MOST), {OFFSET: offset})
    except TimeoutError:
        raise BrokerUnavailable("the archive did not answer in time") from None
    except ChannelRefused as error:
        refused = refusal(error, ARCHIVE)
        if isinstance(refused, QueueMissing):
            refused = QueueMissing(ARCHIVE, _REMEDY)
        raise refused from error
    else:
        # A stream does not report its end: stored messages arrive without pauses.
        while len(found) < limit and not channel.ended.done():
            arrived.clear()
            try:
                async with asyncio.timeout(_QUIET):
                    await arrived.wait()
            except TimeoutError:
                break
    finally:
        feed.abandon()
    return found
