import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest

from taskmq.contracts.broker import BrokerOptions, Delivery, QueueStats, Subscription
from taskmq.errors import BrokerUnavailable, QueueMissing, Unroutable
from taskmq.model.topology import UNROUTABLE
from taskmq.testing.broker_suite.case import peek
from taskmq.testing.fake_clock import FakeClock
from taskmq_local import MemoryBroker, forget_memory, open_memory_broker
from tests.servers.waiting import until
from tests.unit.local.kit import Inbox, declare, message, run, send, settle_loop

pytestmark = pytest.mark.real_time


@pytest.fixture
def url() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    forget_memory(name)


def open_memory(url: str, clock: FakeClock | None = None) -> MemoryBroker:
    return open_memory_broker(url, BrokerOptions(clock=clock or FakeClock()))


async def test_a_delayed_message_arrives_at_its_time_and_not_before(url: str) -> None:
    clock, inbox = FakeClock(), Inbox()
    broker = open_memory(url, clock)
    await declare(broker)
    await broker.consume([Subscription("q", 10)], inbox)
    await send(broker, "later", due=clock.now_ms() + 60_000)

    clock.advance(59.999)
    await settle_loop()
    assert inbox.texts == []

    clock.advance(0.001)
    await until(lambda: inbox.texts == ["later"])
    await broker.aclose()


async def test_a_delayed_message_joins_the_tail_of_its_queue(url: str) -> None:
    clock, inbox = FakeClock(), Inbox()
    broker = open_memory(url, clock)
    await declare(broker)
    await send(broker, "delayed", due=clock.now_ms() + 1_000)
    await send(broker, "first")

    await clock.wait_for_sleepers()
    clock.advance(1)
    await settle_loop()
    await send(broker, "last")

    await broker.consume([Subscription("q", 10)], inbox)
    await until(lambda: len(inbox) == 3)
    assert inbox.texts == ["first", "delayed", "last"]
    await broker.aclose()


async def test_an_earlier_message_reschedules_the_timer(url: str) -> None:
    clock, inbox = FakeClock(), Inbox()
    consumer, sender = open_memory(url, clock), open_memory(url, clock)
    await declare(consumer)
    await consumer.consume([Subscription("q", 10)], inbox)
    await send(sender, "tomorrow", due=clock.now_ms() + 86_400_000)
    await send(sender, "soon", due=clock.now_ms() + 5_000)
    await settle_loop()

    clock.advance(5)

    await until(lambda: inbox.texts == ["soon"])
    await sender.aclose()
    clock.advance(86_400)
    await until(lambda: inbox.texts == ["soon", "tomorrow"])
    await consumer.aclose()


def test_a_producer_on_the_loop_of_another_thread_wakes_the_consumer(url: str) -> None:
    async def produce() -> None:
        broker = open_memory(url)
        await send(broker, *(str(number) for number in range(100)))
        await broker.aclose()

    async def main() -> None:
        inbox = Inbox()
        broker = open_memory(url)
        await declare(broker)
        await broker.consume([Subscription("q", 100)], inbox)
        thread = threading.Thread(target=asyncio.run, args=(produce(),))
        thread.start()

        await until(lambda: len(inbox) == 100)

        thread.join()
        assert inbox.texts == [str(number) for number in range(100)]
        await broker.aclose()

    run(main())


async def test_consumers_of_one_queue_share_ready_messages(url: str) -> None:
    one, two, broker = Inbox(), Inbox(), open_memory(url)
    await declare(broker)
    await broker.consume([Subscription("q", 50)], one)
    await broker.consume([Subscription("q", 50)], two)

    await send(broker, *(str(number) for number in range(20)))
    await until(lambda: len(one) + len(two) == 20)

    assert one
    assert two
    await broker.aclose()


async def test_messages_of_a_closed_broker_return_to_the_front_in_order(url: str) -> None:
    inbox, again, broker, other = Inbox(), Inbox(), open_memory(url), open_memory(url)
    await declare(broker)
    await send(broker, "1", "2", "3", "4", "5")
    await broker.consume([Subscription("q", 3)], inbox)
    await until(lambda: len(inbox) == 3)
    inbox[1].ack()

    await broker.aclose()

    await other.consume([Subscription("q", 10)], again)
    await until(lambda: len(again) == 4)
    assert again.texts == ["1", "3", "4", "5"]
    assert [delivery.redelivered for delivery in again[:3]] == [True, True, False]
    await other.aclose()


async def test_settling_after_the_close_is_counted_and_has_no_effect(url: str) -> None:
    inbox, broker, other = Inbox(), open_memory(url), open_memory(url)
    await declare(broker)
    await send(broker, "1", "2")
    await broker.consume([Subscription("q", 10)], inbox)
    await until(lambda: len(inbox) == 2)
    await broker.aclose()

    inbox[0].ack()
    inbox[1].requeue()
    inbox[1].ack()

    assert broker.void == 2
    assert await other.stats(["q"]) == [QueueStats("q", ready=2, unsettled=0, delayed=0, consumers=0)]
    await other.aclose()


async def test_a_deleted_queue_is_declared_again_by_its_users(url: str) -> None:
    inbox, declarer, other = Inbox(), open_memory(url), open_memory(url)
    await declare(declarer)
    consumer = await other.consume([Subscription("q", 10)], inbox)
    await other.delete("q")
    assert not consumer.healthy
    with pytest.raises(Unroutable):
        await other.publish(message("lost"), timeout=1)

    await send(declarer, "kept")

    await until(lambda: inbox.texts == ["kept"])
    assert consumer.healthy
    await declarer.aclose()
    await other.aclose()


async def test_settling_a_message_of_a_deleted_queue_has_no_effect(url: str) -> None:
    inbox, broker = Inbox(), open_memory(url)
    await declare(broker)
    await send(broker, "1", "2")
    await broker.consume([Subscription("q", 1)], inbox)
    await until(lambda: len(inbox) == 1)

    assert await broker.delete("q") == 1
    await declare(broker)
    inbox[0].ack()

    assert broker.void == 1
    assert (await broker.stats(["q"]))[0].unsettled == 0
    await broker.aclose()


async def test_a_delayed_message_of_a_deleted_queue_goes_to_unroutable(url: str) -> None:
    clock = FakeClock()
    broker = open_memory(url, clock)
    await declare(broker)
    await send(broker, "orphan", due=clock.now_ms() + 1_000)
    await broker.delete("q")

    clock.advance(1)

    async with peek(broker, UNROUTABLE, limit=5) as held:
        assert [delivery.body for delivery in held] == [b"orphan"]
        assert held[0].headers["x-taskmq-queue"] == "q"
    await broker.aclose()


async def test_a_failing_delivery_does_not_strand_the_others(url: str) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    inbox, broker = Inbox(), open_memory(url)

    def deliver(delivery: Delivery) -> None:
        if delivery.body == b"1":
            raise RuntimeError("boom")
        inbox(delivery)

    await declare(broker)
    await send(broker, "1", "2", "3")
    await broker.consume([Subscription("q", 10)], deliver)

    await until(lambda: inbox.texts == ["2", "3"])
    assert [str(error) for error in reported] == ["boom"]
    await broker.aclose()


async def test_a_discarded_hub_is_empty_for_its_next_user(url: str) -> None:
    before = open_memory(url)
    await declare(before)
    await send(before, "1")

    forget_memory(url.removeprefix("memory://"))

    after = open_memory(url)
    assert await after.stats(["q"]) == []
    with pytest.raises(QueueMissing):
        await after.purge("q")
    await before.aclose()
    await after.aclose()


async def test_hubs_of_different_names_are_separate(url: str) -> None:
    one, two = open_memory(url), open_memory(f"{url}-other")
    await declare(one)

    assert await two.stats(["q"]) == []
    await one.aclose()
    await two.aclose()
    with pytest.raises(BrokerUnavailable, match="closed"):
        await one.stats(["q"])
