"""Results of a RabbitMQ publish: confirmed, returned, refused, never answered."""

import asyncio
import os
import platform
import time
from typing import Any, ClassVar

import pytest

from taskmq.contracts.broker import BrokerOptions, HeaderValue, Outgoing
from taskmq.errors import (
    BrokerBlocked,
    BrokerUnavailable,
    EncodeError,
    PublishRejected,
    PublishUnknown,
    TooLarge,
    TopologyMismatch,
    Unroutable,
)
from taskmq.model.topology import UNROUTABLE, WorkQueue
from taskmq.model.units import instant_text
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, eventually, raises
from taskmq_rabbitmq import open_broker
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase, TunedNodeCase

pytestmark = pytest.mark.rabbitmq


class TestPublishing(RabbitMQCase):
    @case
    async def test_a_message_is_legible_in_the_management_console(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        await broker.publish(
            Outgoing(
                queue=queue,
                body=b'{"task":"shop.resize","args":[7]}',
                content_type="application/json",
                job_id="job-1",
                task="shop.resize",
                enqueued=1_700_000_000_123,
                root="job-0",
                headers={"x-taskmq-attempt": 2, "note": "größe"},
            ),
            timeout=10,
        )

        (seen,) = await self.look(queue)
        # RabbitMQ 3.10 adds it from the first delivery on, later ones from the second.
        seen["properties"]["headers"].pop("x-delivery-count", None)
        assert seen["payload"] == '{"task":"shop.resize","args":[7]}'
        assert seen["properties"] == {
            "app_id": "taskmq",
            "content_encoding": "utf-8",
            "content_type": "application/json",
            "correlation_id": "job-0",
            "delivery_mode": 2,
            "headers": {"note": "größe", "x-taskmq-attempt": 2, "x-taskmq-pub": 1},
            "message_id": "job-1",
            "timestamp": 1_700_000_000,
            "type": "shop.resize",
        }

    @case
    async def test_the_connections_are_legible_too(self) -> None:
        broker = self.broker("shop")
        await broker.declare([queue := self.new_queue()])
        await self.consume(broker, queue.name)

        def ours(connections: list[dict[str, Any]]) -> set[str]:
            return {
                one["client_properties"]["connection_name"]
                for one in connections
                if one.get("vhost") == self.vhost and one["client_properties"]["product"] == "taskmq"
            }

        async def names() -> set[str]:
            return ours(await self.http("GET", "connections"))

        here = f"taskmq shop {platform.node()}:{os.getpid()}"
        await eventually(names, {f"{here} publish", f"{here} consume"}, within=20)

    @case
    async def test_a_message_without_a_queue_is_unroutable(self) -> None:
        broker = self.broker()

        with raises(Unroutable) as caught:
            await self.send(broker, "no.such.queue", "one")

        assert caught[0].queue == "no.such.queue"

    @case
    async def test_only_the_messages_without_a_queue_fail(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        futures = [
            broker.publish(message(queue if number % 3 else "gone", str(number)), timeout=10) for number in range(300)
        ]
        await asyncio.wait(futures)

        assert [future.exception() is None for future in futures] == [bool(n % 3) for n in range(300)]
        await self.expect_only(broker, queue, *(str(number) for number in range(300) if number % 3))

    @case
    async def test_a_queue_declared_here_and_deleted_since_is_declared_again(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.delete_queue(queue)

        await self.send(broker, queue, *"abc")

        await self.expect_only(broker, queue, *"abc")
        assert await broker.stats([queue + ".dlq"]) == [], "no job has died"

    @case
    async def test_a_delayed_message_for_a_missing_queue_is_unroutable_at_once(self) -> None:
        broker = self.broker()
        due = int(time.time() * 1000) + 3_600_000

        with raises(Unroutable):
            await broker.publish(message("no.such.queue", "one", due=due), timeout=10)

    @case
    async def test_a_delayed_message_for_a_foreign_queue_arrives(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        due = int(time.time() * 1000) + 300

        await broker.publish(message(queue, "one", due=due), timeout=10)

        inbox, _ = await self.consume(broker, queue)
        (delivery,) = await inbox.take_and_ack(1)
        assert time.time() * 1000 >= due
        assert delivery.headers == {"x-taskmq-eta": instant_text(due)}

    @case
    async def test_a_delayed_message_for_a_queue_deleted_in_the_meantime_is_kept(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await broker.publish(message(queue, "one", due=int(time.time() * 1000) + 300), timeout=10)
        await self.delete_queue(queue)

        inbox, _ = await self.consume(broker, UNROUTABLE)

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_a_ladder_without_its_entrance_is_repaired(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.http("DELETE", "exchanges/{vhost}/taskmq.delay.v2.enter")
        due = int(time.time() * 1000) + 240

        sent = [message(queue, "one"), message(queue, "two", due=due), message(queue, "three")]
        await self.publish(broker, *sent)

        # The broker closed the channel over it, so messages in transit were sent again.
        inbox, _ = await self.consume(broker, queue)
        missing = {"one", "two", "three"}
        while missing:
            (came,) = bodies(await inbox.take_and_ack(1))
            assert came in {"one", "two", "three"}
            missing.discard(came)

    @case
    async def test_a_full_queue_refuses(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.http(
            "PUT",
            "policies/{vhost}/short",
            {"pattern": f"^{queue}$", "definition": {"max-length": 5}, "apply-to": "queues"},
        )

        refused = 0
        async with asyncio.timeout(self.patience):
            # Policies take a moment, and a quorum queue stops a little late.
            while refused < 3:
                try:
                    await broker.publish(message(queue, "one"), timeout=10)
                except PublishRejected:
                    refused += 1

        await broker.purge(queue)
        await self.send(broker, queue, "fits again")
        inbox, _ = await self.consume(broker, queue)
        assert bodies(await inbox.take_and_ack(1)) == ["fits again"]

    @case
    async def test_a_message_larger_than_the_limit_is_refused_locally(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        with raises(TooLarge) as caught:
            await broker.publish(message(queue, b"x" * (broker.max_message_bytes + 1)), timeout=10)

        assert caught[0].size == caught[0].limit + 1

    @case
    async def test_a_large_message_arrives_completely(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        body = bytes(range(256)) * 8192

        await self.publish(broker, message(queue, body), message(queue, b""), message(queue, body))

        inbox, _ = await self.consume(broker, queue)
        assert [delivery.body for delivery in await inbox.take_and_ack(3)] == [body, b"", body]

    @case
    async def test_more_messages_than_the_window_are_sent_in_order(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        texts = [str(number) for number in range(5000)]

        await self.send(broker, queue, *texts)

        inbox, _ = await self.consume(broker, queue, prefetch=500)
        assert bodies(await inbox.take_and_ack(5000)) == texts

    @case
    async def test_a_header_unsuitable_for_amqp_is_an_encode_error(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        headers: dict[str, Any] = {"number": 1.5}

        with raises(EncodeError):
            await broker.publish(message(queue, "one", headers=headers), timeout=10)

        await self.send(broker, queue, "two")
        await self.expect_only(broker, queue, "two")

    @case
    async def test_taskmq_headers_are_not_copied(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        headers: dict[str, HeaderValue] = {"x-taskmq-pub": 77, "x-taskmq-eta": 1, "x-taskmq-republished": 1}

        await broker.publish(message(queue, "one", headers={**headers, "kept": "yes"}), timeout=10)

        inbox, _ = await self.consume(broker, queue)
        (delivery,) = await inbox.take_and_ack(1)
        assert delivery.headers == {"kept": "yes"}

    @case
    async def test_a_queue_with_other_properties_is_a_mismatch_and_stays(self) -> None:
        broker = self.broker()
        queue = self.new_queue()
        await self.http("PUT", f"queues/{{vhost}}/{queue.name}", {"durable": True})

        with raises(TopologyMismatch) as caught:
            await broker.declare([queue])

        assert queue.name in str(caught[0])
        assert (await self.http("GET", f"queues/{{vhost}}/{queue.name}"))["type"] == "classic"
        await self.queue(broker)

    @case
    async def test_classic_queues_work_as_well(self) -> None:
        broker = self.broker()
        queue = WorkQueue(self.new_queue().name, "classic")
        await broker.declare([queue])
        due = int(time.time() * 1000) + 200

        await self.publish(broker, message(queue.name, "one"), message(queue.name, "two", due=due))

        inbox, _ = await self.consume(broker, queue.name)
        assert bodies(await inbox.take_and_ack(2)) == ["one", "two"]
        assert (await self.http("GET", f"queues/{{vhost}}/{queue.name}"))["type"] == "classic"

    @case
    async def test_a_future_with_a_vanished_owner_disturbs_nothing(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        futures = [broker.publish(message(queue, str(number)), timeout=10) for number in range(2000)]
        for future in futures[::2]:
            future.cancel()
        await asyncio.wait(futures)

        inbox, _ = await self.consume(broker, queue, prefetch=500)
        assert bodies(await inbox.take_and_ack(2000)) == [str(number) for number in range(2000)]

    async def look(self, queue: str) -> list[dict[str, Any]]:
        body = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}
        seen: list[dict[str, Any]] = await self.http("POST", f"queues/{{vhost}}/{queue}/get", body)
        return seen


class TestDeadlines(RabbitMQCase):
    @case
    async def test_without_a_broker_nothing_was_sent_and_the_reason_is_reported(self) -> None:
        broker = self.broker(CUT_OFF)
        self.proxy.refuse(True)
        began = time.monotonic()

        futures = [broker.publish(message("q", str(number)), timeout=0.3) for number in range(100)]
        await asyncio.wait(futures)

        assert time.monotonic() - began >= 0.3
        assert {type(future.exception()) for future in futures} == {BrokerUnavailable}
        assert "refused" in str(futures[0].exception()).lower()

    @case
    async def test_each_message_has_its_own_deadline(self) -> None:
        broker = self.broker(CUT_OFF)
        self.proxy.refuse(True)
        loop = asyncio.get_running_loop()
        ended: list[float] = []

        timeouts = [0.5, 0.1, 0.3, 0.2, 0.4]
        began = loop.time()
        patient = broker.publish(message("q", "one"), timeout=60)
        futures = [broker.publish(message("q", "one"), timeout=timeout) for timeout in timeouts]
        for future in futures:
            future.add_done_callback(lambda _: ended.append(loop.time() - began))
        await asyncio.wait(futures)

        assert {type(future.exception()) for future in futures} == {BrokerUnavailable}
        assert all(timeout <= end for timeout, end in zip(sorted(timeouts), ended, strict=True))
        assert not patient.done()
        patient.cancel()

    @case
    async def test_a_written_message_without_an_answer_is_unknown_and_others_are_not_sent(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")
        self.proxy.stall(True)

        futures = [broker.publish(message(queue, str(number)), timeout=0.4) for number in range(1500)]
        await asyncio.wait(futures)
        kinds = [type(future.exception()) for future in futures]
        assert kinds == [PublishUnknown] * 1000 + [BrokerBlocked] * 500

        # They are at the broker all the same, and its confirm frees the window.
        self.proxy.stall(False)
        await self.send(broker, queue, "last")
        await self.expect_ready(broker, queue, 1002)

    @case
    async def test_an_overlong_line_is_refused_at_once(self) -> None:
        broker = self.broker(CUT_OFF)
        self.proxy.refuse(True)
        body = b"x" * 2**20

        futures = [broker.publish(message("q", body), timeout=0.5) for _ in range(70)]

        refused = [future for future in futures if future.done()]
        assert 5 < len(refused) < 10
        assert {type(future.exception()) for future in refused} == {BrokerBlocked}
        await asyncio.wait(futures)
        assert {type(future.exception()) for future in futures} == {BrokerBlocked, BrokerUnavailable}

    @case
    async def test_a_wrong_password_is_reported_and_not_shown(self) -> None:
        url = f"amqp://guest:S3CRET@127.0.0.1:{self.server.port}/{self.vhost}"
        broker = open_broker(url, BrokerOptions())
        self.opened.push_async_callback(broker.aclose)

        with raises(BrokerUnavailable) as caught:
            await broker.connect(timeout=20)

        assert "ACCESS_REFUSED" in str(caught[0])
        assert "S3CRET" not in str(caught[0])

    @case
    async def test_a_missing_virtual_host_is_reported(self) -> None:
        broker = open_broker(f"amqp://guest:guest@127.0.0.1:{self.server.port}/nowhere", BrokerOptions())
        self.opened.push_async_callback(broker.aclose)

        with raises(BrokerUnavailable) as caught:
            await broker.connect(timeout=20)

        assert "nowhere" in str(caught[0])

    @case
    async def test_one_of_several_hosts_is_enough(self) -> None:
        self.proxy.refuse(True)
        hosts = f"127.0.0.1:{self.proxy.port},127.0.0.1:{self.server.port}"
        broker = open_broker(f"amqp://guest:guest@{hosts}/{self.vhost}", BrokerOptions())
        self.opened.push_async_callback(broker.aclose)

        await broker.connect(timeout=10)

        queue = await self.queue(broker)
        assert [depth.ready for depth in await broker.stats([queue])] == [0]

    @case
    async def test_closing_during_a_connection_attempt_takes_no_longer_than_promised(self) -> None:
        broker = self.open_broker(CUT_OFF)
        self.proxy.stall(True)
        future = broker.publish(message("q", "one"), timeout=0.2)
        await asyncio.wait({future})

        await broker.aclose()

        assert isinstance(future.exception(), BrokerUnavailable)


@pytest.mark.slow
class TestSmallLimit(TunedNodeCase):
    settings: ClassVar = {"max_message_size": 100_000}

    @case
    async def test_only_a_message_too_large_for_the_broker_fails(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        sizes = [200_000 if number % 100 == 50 else 10 + number for number in range(500)]
        futures = [broker.publish(message(queue, b"x" * size), timeout=20) for size in sizes]
        await asyncio.wait(futures)

        for size, future in zip(sizes, futures, strict=True):
            error = future.exception()
            assert (error is None) == (size < 100_000)
            if error is not None:
                assert isinstance(error, TooLarge)
                assert (error.size, error.limit) == (200_000, 100_000)
        inbox, _ = await self.consume(broker, queue, prefetch=100)
        came: set[int] = set()
        while len(came) < 495:
            came |= {len(delivery.body) for delivery in await inbox.take_and_ack(1)}
