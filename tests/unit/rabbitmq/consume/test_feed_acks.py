"""Acknowledgements of a feed: sent at once, or with others."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from taskmq_rabbitmq.amqp.channels import OpenChannel
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed, RabbitMQDelivery

# The channel's own default, a millisecond.
_SOON = -1.0


class _Raw:
    """A channel that notes how many seconds each acknowledgement may wait."""

    is_live = True

    def __init__(self) -> None:
        self.acks: list[tuple[int, float]] = []
        self.unsent_acks = 0

    def basic_qos(self, **_: object) -> None:
        pass

    def basic_consume(self, *_: object, **__: object) -> None:
        pass

    def receive(self, call: object) -> None:
        pass

    receive_addressed = receive

    def ack(self, tag: int) -> None:
        self.acks.append((tag, 0.0))
        self.unsent_acks = 0

    def ack_batched(self, tag: int, seconds: float = _SOON) -> None:
        self.acks.append((tag, seconds))
        self.unsent_acks += 1


class _Channel:
    def __init__(self, raw: _Raw) -> None:
        self.raw = raw

    async def request(self, send: Callable[[object], object]) -> None:
        send(None)


async def _consume(raw: _Raw, queue: str, *, prefetch: int, count: int) -> list[RabbitMQDelivery]:
    """Return deliveries of a feed with this channel."""
    found: list[RabbitMQDelivery] = []
    channel = cast("OpenChannel", _Channel(raw))
    loop = asyncio.get_running_loop()
    feed = Feed(channel, queue, tag="t", deliver=found.append, counts=DeliveryCounts(), loop=loop)
    await feed.start(prefetch)
    for tag in range(1, count + 1):
        feed.receive(tag, False, cast("Any", None), b"")
    return found


@pytest.mark.parametrize(
    ("queue", "seconds"),
    [("work.jobs", 0.02), ("work.parcels", 0.02), ("taskmq.reports.shop.0", 0.02), ("work", 0.0), ("work.dlq", 0.0)],
)
async def test_only_acks_of_invitations_and_reports_wait_on_an_idle_system(queue: str, seconds: float) -> None:
    raw = _Raw()
    (delivery,) = await _consume(raw, queue, prefetch=10, count=1)

    delivery.ack()

    assert raw.acks == [(1, seconds)]


async def test_an_ack_does_not_wait_once_the_broker_may_soon_send_nothing_more() -> None:
    raw = _Raw()
    deliveries = await _consume(raw, "work.jobs", prefetch=8, count=6)

    for delivery in deliveries:
        delivery.ack()

    # While more than half of the prefetch is in hand, work goes on; then half of it is in hand or not acknowledged.
    assert raw.acks == [(1, _SOON), (2, 0.0), (3, 0.02), (4, 0.02), (5, 0.02), (6, 0.02)]
