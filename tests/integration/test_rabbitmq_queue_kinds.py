"""Kinds of queues at a real node: native priorities, limits and delays through them, unchangeable properties."""

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import PublishRejected, TaskMQ, TopologyMismatch, UnsupportedFeature, WorkQueue
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.model.envelope import decode_envelope
from taskmq.operations.dead_letters import replay
from taskmq.testing import FakeClock
from taskmq.testing.broker_suite.case import bodies, message
from taskmq.testing.runner import case, eventually, raises
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import open_broker
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import entrance
from tests.integration.rabbitmq_case import RabbitMQCase

pytestmark = pytest.mark.rabbitmq

_LETTERS = 40
"""More than the 32 that RabbitMQ takes off a level at a time."""
_LATE_MS = 500


def with_priority(queue: str, text: str, priority: int | None, *, due: int | None = None) -> Outgoing:
    return replace(message(queue, text, due=due), priority=priority)


def in_ms(milliseconds: int) -> int:
    return time.time_ns() // 1_000_000 + milliseconds


class TestNativePriorities(RabbitMQCase):
    @case
    async def test_a_classic_queue_delivers_the_highest_priority_first(self) -> None:
        broker = self.broker()
        work = self.new_queue(kind="classic", priorities="native")
        await broker.declare([work])
        numbers = [3, 0, 9, 5, 1, 8, 6, 2, 7, 4]

        await self.publish(
            broker, *(with_priority(work.name, str(number), work.native_priority(number)) for number in numbers)
        )

        inbox, _ = await self.consume(broker, work.name, prefetch=1)
        came = [int(text) for text in bodies(await inbox.take_and_ack(10))]
        # Two numbers are one level; within it the order of sending.
        assert [number // 2 for number in came] == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
        assert came == [9, 8, 6, 7, 5, 4, 3, 2, 0, 1]

    @case
    async def test_a_replayed_dead_job_keeps_its_priority(self) -> None:
        work = self.new_queue(kind="classic", priorities="native")
        app = TaskMQ(self.process_url, queues=[work], default_queue=work.name)
        failed: list[int] = []

        @app.task(name="fails", result=False, retry=None)
        async def fails(number: int) -> None:
            failed.append(number)
            raise ValueError(number)

        worker = Worker(app, WorkerConfig(concurrency=1))
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        async with TaskMQ(self.process_url, queues=[work], default_queue=work.name) as sender:
            task = sender.task(name="fails")(fails.function)
            for number in (1, 9, 5):
                await task.options(priority=number).asend(number)

        async def count() -> int:
            return len(failed)

        await eventually(count, 3, within=self.patience)
        worker.drain()
        await running
        broker = self.broker()

        await replay(broker, work.name, timeout=10)

        inbox, _ = await self.consume(broker, work.name, prefetch=1)
        again = await inbox.take_and_ack(3)
        assert [decode_envelope(one.body).priority for one in again] == [9, 5, 1]

    @case
    async def test_a_quorum_queue_supports_priorities_from_4_3_on_and_is_refused_before(self) -> None:
        broker = self.broker()
        work = self.new_queue(priorities="native")
        await broker.connect(timeout=10)
        version = broker.server_version
        assert version is not None
        if version < (4, 3):
            with raises(UnsupportedFeature) as caught:
                await broker.declare([work])
            assert work.name in str(caught[0])
            assert ".".join(map(str, version)) in str(caught[0])
            assert await broker.stats([work.name]) == []
            return
        await broker.declare([work])
        numbers = [3, 0, 9, 5, 1, 8, 6, 2, 7, 4]

        await self.publish(
            broker, *(with_priority(work.name, str(number), work.native_priority(number)) for number in numbers)
        )

        inbox, _ = await self.consume(broker, work.name, prefetch=1)
        assert [int(text) for text in bodies(await inbox.take_and_ack(10))] == sorted(numbers, reverse=True)

    @case
    async def test_a_message_on_the_ladder_has_no_priority_and_any_other_one_has(self) -> None:
        broker = self.broker()
        work = self.new_queue(kind="classic", priorities="native")
        await broker.declare([work])

        await self.publish(
            broker,
            with_priority(work.name, "at once", 4),
            with_priority(work.name, "at once, lowest", 0),
            with_priority(work.name, "delayed", 4, due=in_ms(300)),
        )

        await self.expect_ready(broker, work.name, 3)
        seen = await self.http(
            "POST",
            f"queues/{{vhost}}/{work.name}/get",
            {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"},
        )
        found = {each["payload"]: each["properties"].get("priority") for each in seen}
        assert found == {"at once": 4, "at once, lowest": 0, "delayed": None}

    @case
    async def test_a_worker_follows_the_order_of_the_queue(self) -> None:
        assert self.process_url is not None
        queue = self.new_queue(kind="classic", priorities="native")
        app = TaskMQ(self.process_url, queues=[queue])
        ran: list[int] = []

        @app.task(queue=queue.name)
        async def work(priority: int) -> None:
            ran.append(priority)

        for priority in (1, 9, 5, 0, 7):
            await work.options(priority=priority).asend(priority)
        await work.asend(4)
        await Worker(app, WorkerConfig(concurrency=1, prefetch=1, burst=True)).run()

        assert ran == [9, 7, 5, 4, 1, 0]


class TestLimits(RabbitMQCase):
    @case
    async def test_a_full_queue_does_not_stop_the_delays_of_others(self) -> None:
        broker = self.broker()
        good = await self.queue(broker)
        full = self.new_queue(max_length=1)
        await broker.declare([full])
        await self._fill(full.name)

        await self._send_letters(full.name)

        assert await self._arrives_in_time(good)

    @case
    async def test_without_its_entrance_a_full_queue_stops_all_delays(self) -> None:
        broker = self.broker()
        good = await self.queue(broker)
        full = self.new_queue(max_length=1)
        await broker.declare([full])
        await self._fill(full.name)
        # As if the queue were bound like one without a limit.
        key = full.name
        binding = f"bindings/{{vhost}}/e/{delay.DELIVER}/q"
        await self.http("POST", f"{binding}/{full.name}", {"routing_key": key})
        (direct,) = await self.http("GET", f"{binding}/{entrance(full.name)}")
        await self.http("DELETE", f"{binding}/{entrance(full.name)}/{direct['properties_key']}")

        await self._send_letters(full.name)

        assert not await self._arrives_in_time(good)

    @case
    async def test_a_sender_unaware_of_the_limit_sends_delayed_messages_once(self) -> None:
        broker, stranger = self.broker(), self.broker()
        work = self.new_queue(max_length=100)
        await broker.declare([work])

        await self.publish(stranger, message(work.name, "delayed", due=in_ms(300)))

        await self.expect_ready(broker, work.name, 1)
        await self.expect_only(broker, work.name, "delayed")

    @case
    async def test_sending_to_a_full_queue_is_rejected(self) -> None:
        assert self.process_url is not None
        queue = self.new_queue(max_length=1)
        async with TaskMQ(self.process_url, queues=[queue]) as app:

            @app.task(queue=queue.name)
            def work(n: int) -> None: ...

            with raises(PublishRejected) as caught:
                for number in range(20):
                    await work.asend(number)

        assert queue.name in str(caught[0])

    async def _fill(self, queue: str) -> None:
        broker = self.broker()
        with raises(PublishRejected):
            for number in range(20):
                await self.send(broker, queue, str(number))

    async def _send_letters(self, queue: str) -> None:
        """Send more delayed messages than a level may have in flight, and wait until they are due."""
        await self._send_late(queue, *(f"letter {n}" for n in range(_LETTERS)))
        await asyncio.sleep(_LATE_MS / 1000 + 0.5)

    async def _arrives_in_time(self, queue: str) -> bool:
        """Whether a message of another queue, on the same level, arrives within some seconds of its time."""
        inbox, _ = await self.consume(self.broker(), queue)
        await self._send_late(queue, "in time")
        inbox._patience = 5
        try:
            await inbox.take_and_ack(1)
        except AssertionError:
            return False
        return True

    async def _send_late(self, queue: str, *texts: str) -> None:
        # With a stopped clock all delays are equal, however slow this machine is.
        assert self.process_url is not None
        clock = FakeClock()
        sender = open_broker(self.process_url, BrokerOptions(name="late", clock=clock))
        self.opened.push_async_callback(sender.aclose)
        due = clock.now_ms() + _LATE_MS
        await self.publish(sender, *(message(queue, text, due=due) for text in texts))


class TestExistingQueues(RabbitMQCase):
    @pytest.mark.parametrize(
        "other",
        [
            {"kind": "classic"},
            {"max_length": 10},
            {"max_bytes": 10},
            {"delivery_limit": 7},
            {"kind": "classic", "priorities": "native"},
        ],
        ids=str,
    )
    def test_a_queue_with_other_properties_is_refused_and_stays(self, other: dict[str, Any]) -> None:
        async def test() -> None:
            first, second = self.broker(), self.broker()
            work = self.new_queue()
            await first.declare([work])
            before = await self.http("GET", f"queues/{{vhost}}/{work.name}")

            with raises(TopologyMismatch) as caught:
                await second.declare([WorkQueue(work.name, **other)])

            assert work.name in str(caught[0])
            assert "taskmq topology diff" in str(caught[0])
            assert (await self.http("GET", f"queues/{{vhost}}/{work.name}"))["arguments"] == before["arguments"]
            await self.send(first, work.name, "still there")
            await self.expect_only(first, work.name, "still there")

        self.run(test)

    @case
    async def test_a_shard_and_its_limit_are_shown_at_the_broker(self) -> None:
        broker = self.broker()
        work = self.new_queue(ordered=2, delivery_limit=7)

        await broker.declare([work])

        for name in work.always:
            arguments = (await self.http("GET", f"queues/{{vhost}}/{name}"))["arguments"]
            assert (arguments["x-single-active-consumer"], arguments["x-delivery-limit"]) == (True, 7)


class TestLimitOfTheVhost(RabbitMQCase):
    @case
    async def test_as_many_queues_as_allowed_can_be_declared(self) -> None:
        broker, work = self.broker(), self.new_queue()
        await broker.declare([self.new_queue()])
        there = len(await self.http("GET", "queues/{vhost}?columns=name"))
        needed = len(work.always)
        await self.http("PUT", "vhost-limits/{vhost}/max-queues", {"value": there + needed})

        await broker.declare([work])

        assert len(await self.http("GET", "queues/{vhost}?columns=name")) == there + needed
        await self.http("DELETE", "vhost-limits/{vhost}/max-queues")
