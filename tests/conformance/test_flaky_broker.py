"""The faults of `FlakyBroker`, one by one; without a fault it passes the suite, see test_memory.py."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.errors import BrokerBlocked, BrokerUnavailable, PublishRejected, PublishUnknown, Unroutable
from taskmq.model.topology import WorkQueue
from taskmq.testing import Acked, Confirmed, Failed, FlakyBroker, Published, Requeued
from taskmq.testing.broker_suite import Inbox, message
from taskmq.testing.broker_suite.case import peek
from taskmq_local import forget_memory, open_memory_broker
from tests.coroutines import run_by

_QUEUE = "work"


def _run(test: Callable[[FlakyBroker], Coroutine[Any, Any, None]]) -> None:
    name = uuid.uuid4().hex

    async def run_with_timeout() -> None:
        broker = FlakyBroker(open_memory_broker(f"memory://{name}", BrokerOptions()))
        async with asyncio.timeout(20):
            await broker.declare([WorkQueue(_QUEUE)])
            await test(broker)
            await broker.aclose()
        forget_memory(name)

    asyncio.run(run_with_timeout())


async def _bodies(broker: FlakyBroker) -> list[bytes]:
    async with peek(broker, _QUEUE, limit=100) as held:
        return [delivery.body for delivery in held]


async def _consume(broker: FlakyBroker) -> Inbox:
    inbox = Inbox(5)
    await broker.consume([Subscription(_QUEUE, 10)], inbox)
    return inbox


@run_by(_run)
async def test_the_journal_records_publishes_confirms_and_settles_in_order(broker: FlakyBroker, /) -> None:
    one, two = message(_QUEUE, "one"), message(_QUEUE, "two")
    inbox = await _consume(broker)
    await broker.publish(one, timeout=5)
    (delivery,) = await inbox.take(1)
    await broker.publish(two, timeout=5)
    delivery.ack()
    delivery.requeue()
    (delivery,) = await inbox.take(1)
    delivery.requeue()
    await inbox.take_and_ack(1)

    assert broker.journal == [
        *(Published(one), Confirmed(one), Published(two), Confirmed(two)),
        *(Acked(_QUEUE, one.job_id), Requeued(_QUEUE, two.job_id), Acked(_QUEUE, two.job_id)),
    ]
    assert broker.kinds()[:2] == ["Published", "Confirmed"]


@run_by(_run)
async def test_the_next_publishes_fail_with_the_given_error_and_never_arrive(broker: FlakyBroker, /) -> None:
    error = PublishRejected("full")
    broker.fail_publishes(2, error)
    sent = [message(_QUEUE, text) for text in ("one", "two", "three")]

    futures = [broker.publish(each, timeout=5) for each in sent]

    for future in futures[:2]:
        with pytest.raises(PublishRejected):
            await future
    await futures[2]
    assert await _bodies(broker) == [b"three"]
    assert broker.journal[:4] == [
        Published(sent[0]),
        Failed(sent[0], error),
        Published(sent[1]),
        Failed(sent[1], error),
    ]


@run_by(_run)
async def test_a_lost_confirm_means_published_but_unknown(broker: FlakyBroker, /) -> None:
    broker.lose_confirms(1)

    with pytest.raises(PublishUnknown):
        await broker.publish(message(_QUEUE, "one"), timeout=5)
    await broker.publish(message(_QUEUE, "two"), timeout=5)

    assert await _bodies(broker) == [b"one", b"two"]
    assert broker.kinds()[:4] == ["Published", "Failed", "Published", "Confirmed"]


@run_by(_run)
async def test_faults_happen_in_the_requested_order(broker: FlakyBroker, /) -> None:
    broker.fail_publishes(1, BrokerUnavailable("gone"))
    broker.lose_confirms(1, BrokerUnavailable("gone after all"))

    futures = [broker.publish(message(_QUEUE, text), timeout=5) for text in ("one", "two")]
    await asyncio.wait(futures)

    assert [str(future.exception()) for future in futures] == ["gone", "gone after all"]
    assert await _bodies(broker) == [b"two"]


@run_by(_run)
async def test_an_error_of_the_inner_broker_is_raised(broker: FlakyBroker, /) -> None:
    broker.lose_confirms(1)

    with pytest.raises(Unroutable):
        await broker.publish(message("nobody declared this", "x"), timeout=5)


@run_by(_run)
async def test_hanging_publishes_continue_in_order_when_they_are_released(broker: FlakyBroker, /) -> None:
    broker.hang_publishes()
    broker.hang_publishes()
    futures = [broker.publish(message(_QUEUE, text), timeout=5) for text in ("one", "two")]
    await asyncio.sleep(0)
    assert broker.hanging == 2
    assert await _bodies(broker) == []
    assert not any(future.done() for future in futures)

    broker.release_publishes()

    await asyncio.gather(*futures)
    assert await _bodies(broker) == [b"one", b"two"]
    await broker.publish(message(_QUEUE, "three"), timeout=5)


@run_by(_run)
async def test_a_hanging_publish_ends_at_its_deadline(broker: FlakyBroker, /) -> None:
    broker.hang_publishes()

    with pytest.raises(BrokerBlocked):
        await broker.publish(message(_QUEUE, "one"), timeout=0.01)

    broker.release_publishes()
    assert await _bodies(broker) == []


@run_by(_run)
async def test_closing_releases_hanging_publishes(broker: FlakyBroker, /) -> None:
    broker.hang_publishes()
    future = broker.publish(message(_QUEUE, "one"), timeout=5)

    await broker.aclose()

    await future
    assert broker.hanging == 0


@run_by(_run)
async def test_a_cancelled_publish_is_still_recorded_only_as_published(broker: FlakyBroker, /) -> None:
    broker.hang_publishes()
    future = broker.publish(message(_QUEUE, "one"), timeout=5)
    future.cancel()

    broker.release_publishes()

    assert broker.kinds() == ["Published"]
    assert await _bodies(broker) == [b"one"]


@run_by(_run)
async def test_a_dropped_settle_never_reaches_the_broker(broker: FlakyBroker, /) -> None:
    sent = [message(_QUEUE, text) for text in ("one", "two", "three")]
    for each in sent:
        await broker.publish(each, timeout=5)
    inbox = await _consume(broker)
    one, two, three = await inbox.take(3)

    broker.drop_settles(2)
    one.ack()
    two.requeue()
    three.ack()

    assert broker.journal[-3:] == [
        Acked(_QUEUE, sent[0].job_id, dropped=True),
        Requeued(_QUEUE, sent[1].job_id, dropped=True),
        Acked(_QUEUE, sent[2].job_id),
    ]
    (stats,) = await broker.stats([_QUEUE])
    assert (stats.ready, stats.unsettled) == (0, 2)


@run_by(_run)
async def test_lost_deliveries_return_and_settling_them_is_void_and_counted(broker: FlakyBroker, /) -> None:
    for text in ("one", "two"):
        await broker.publish(message(_QUEUE, text), timeout=5)
    inbox = await _consume(broker)
    lost: list[Delivery] = await inbox.take(2)

    assert broker.lose_deliveries() == 2
    again = await inbox.take(2)
    lost[0].ack()
    lost[1].requeue()

    assert [(delivery.body, delivery.redelivered) for delivery in again] == [(b"one", True), (b"two", True)]
    assert broker.void == 2
    assert not [entry for entry in broker.journal if isinstance(entry, Acked | Requeued)]
    for delivery in again:
        delivery.ack()


@run_by(_run)
async def test_the_other_calls_fail_on_request_too(broker: FlakyBroker, /) -> None:
    error = BrokerUnavailable("away")
    for name in ("connect", "declare", "consume", "browse", "purge", "stats"):
        broker.fail_calls(name, 1, error)

    async def browse() -> None:
        async with broker.browse(_QUEUE):
            pass

    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: broker.connect(timeout=5),
        lambda: broker.declare([WorkQueue(_QUEUE)]),
        lambda: broker.consume([Subscription(_QUEUE, 1)], Inbox(5)),
        browse,
        lambda: broker.purge(_QUEUE),
        lambda: broker.stats([_QUEUE]),
    ]
    for call in calls:
        with pytest.raises(BrokerUnavailable):
            await call()
        await call()
