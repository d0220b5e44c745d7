"""Tests of publishing: confirmed messages are stored in order and unchanged; others raise an error."""

import asyncio

from msgspec.structs import replace

from taskmq.contracts.broker import Outgoing
from taskmq.errors import SendError, TooLarge, Unroutable
from taskmq.model.topology import CLASSES, WorkQueue
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message
from taskmq.testing.runner import case

_MANY = 1_000
_LARGEST_TRIED = 33_554_432


class Publishing(BrokerCase):
    @case
    async def test_a_confirmed_message_is_delivered_once(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        await self.send(broker, queue, "one")

        inbox, _ = await self.consume(broker, queue)
        await inbox.take(1)
        await self.send(broker, queue, "two")
        assert bodies(await inbox.take_and_ack(1)) == ["two"]
        assert bodies(inbox.deliveries) == ["one", "two"]

    @case
    async def test_the_future_of_a_publish_resolves_to_none(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        future = broker.publish(message(queue, "one"), timeout=self.publish_timeout)

        assert isinstance(future, asyncio.Future)
        assert await future is None  # type: ignore[func-returns-value]  # the test is that it is None

    @case
    async def test_a_thousand_pipelined_messages_arrive_in_publish_order(self) -> None:
        sender, receiver = self.broker(), self.broker()
        queue = await self.queue(sender)
        expected = [str(number) for number in range(_MANY)]

        await self.send(sender, queue, *expected)

        inbox, _ = await self.consume(receiver, queue, prefetch=64)
        assert bodies(await inbox.take_and_ack(_MANY)) == expected

    @case
    async def test_a_thousand_messages_reach_a_running_consumer_in_order(self) -> None:
        sender, receiver = self.broker(), self.broker()
        queue = await self.queue(sender)
        inbox, _ = await self.consume(receiver, queue, prefetch=64)
        expected = [str(number) for number in range(_MANY)]

        sending = asyncio.gather(
            *(sender.publish(message(queue, text), timeout=self.publish_timeout) for text in expected)
        )

        assert bodies(await inbox.take_and_ack(_MANY)) == expected
        await sending

    @case
    async def test_messages_of_several_publishers_arrive_in_order_per_publisher(self) -> None:
        senders = [self.broker(f"sender {number}") for number in range(3)]
        queue = await self.queue(senders[0])

        await asyncio.gather(
            *(
                self.send(sender, queue, *(f"{name}{number}" for number in range(50)))
                for name, sender in zip("abc", senders, strict=True)
            )
        )

        inbox, _ = await self.consume(senders[0], queue, prefetch=10)
        received = bodies(await inbox.take_and_ack(150))
        for name in "abc":
            assert [text for text in received if text.startswith(name)] == [f"{name}{n}" for n in range(50)]

    @case
    async def test_a_broker_connects_on_first_use(self) -> None:
        first, second, third = self.broker(), self.broker(), self.broker()
        queue = await self.queue(first)

        await self.send(second, queue, "one")

        inbox, _ = await self.consume(third, queue)
        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_a_binary_body_and_all_properties_survive(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        sent = Outgoing(
            queue=queue,
            body=bytes(range(256)) * 3,
            content_type="application/msgpack",
            job_id="an id of the sender's own",
            task="größe.ändern",
            enqueued=1_700_000_000_123,
            root="the root's id",
            headers={"x-taskmq-note": "kept"},
        )

        await self.publish(broker, sent)

        inbox, _ = await self.consume(broker, queue)
        (received,) = await inbox.take_and_ack(1)
        assert type(received.body) is bytes
        assert received.body == sent.body
        assert received.content_type == "application/msgpack"
        assert received.message_id == "an id of the sender's own"
        assert received.task == "größe.ändern"
        assert received.queue == queue
        assert received.headers["x-taskmq-note"] == "kept"
        assert received.redelivered is False

    @case
    async def test_an_empty_body_survives(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        await self.publish(broker, message(queue, b""), message(queue, b"next"))

        inbox, _ = await self.consume(broker, queue)
        assert [delivery.body for delivery in await inbox.take_and_ack(2)] == [b"", b"next"]

    @case
    async def test_a_body_of_a_megabyte_survives(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        body = bytes(number % 251 for number in range(1_000_000))

        await self.publish(broker, message(queue, body), message(queue, b"next"))

        inbox, _ = await self.consume(broker, queue)
        assert [delivery.body for delivery in await inbox.take_and_ack(2)] == [body, b"next"]

    @case
    async def test_header_values_keep_their_types_and_every_digit(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        headers: dict[str, str | int] = {
            "x-taskmq-zero": 0,
            "x-taskmq-negative": -1,
            "x-taskmq-large": 2**62,
            "x-taskmq-number-as-text": "007",
            "x-taskmq-empty": "",
            "x-taskmq-text": "naïve ☂ 雨",
            "x-taskmq-lines": "one\ntwo\ttab \"quoted\" 'and' \\",
        }

        await self.publish(broker, message(queue, "one", headers=headers))

        inbox, _ = await self.consume(broker, queue)
        (received,) = await inbox.take_and_ack(1)
        kept = {name: received.headers.get(name) for name in headers}
        assert kept == headers
        assert [type(value) for value in kept.values()] == [type(value) for value in headers.values()]

    @case
    async def test_a_message_without_headers_arrives_without_user_headers(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        await self.send(broker, queue, "one")

        inbox, _ = await self.consume(broker, queue)
        (received,) = await inbox.take_and_ack(1)
        # Headers added by servers start with "x-", those added by taskmq with "x-taskmq-".
        assert [name for name in received.headers if not name.startswith("x-")] == []

    @case
    async def test_each_priority_class_has_its_own_queue(self) -> None:
        broker = self.broker()
        work = self.new_queue()
        await broker.declare([work])

        await self.publish(broker, *(message(queue, f"to {queue}") for queue in work.physical))

        # One queue for each class, and two for the jobs of the store.
        assert len(set(work.physical)) == len(CLASSES) + 2
        for queue in work.physical:
            await self.expect_only(broker, queue, f"to {queue}")

    @case
    async def test_each_lane_has_its_own_queue_and_can_be_browsed_from_the_start(self) -> None:
        broker = self.broker()
        work = self.new_queue(lanes=3)
        await broker.declare([work])
        assert [(entry.queue, entry.ready) for entry in await broker.stats(work.always)] == [
            (name, 0) for name in work.always
        ]

        await self.publish(broker, *(message(queue, f"to {queue}") for queue in work.always))

        assert [(entry.queue, entry.ready) for entry in await broker.stats(work.always)] == [
            (name, 1) for name in work.always
        ]
        for queue in work.always:
            await self.expect_only(broker, queue, f"to {queue}")

    @case
    async def test_a_message_for_an_undeclared_queue_is_unroutable(self) -> None:
        broker = self.broker()
        await self.queue(broker)

        future = broker.publish(message("suite.nobody-declared-this", "x"), timeout=self.publish_timeout)

        error = await _error_of(future)
        assert isinstance(error, Unroutable)
        assert error.queue == "suite.nobody-declared-this"

    @case
    async def test_a_delayed_message_for_an_undeclared_queue_is_unroutable(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        due = 4_000_000_000_000

        lost = message("suite.nobody-declared-this", "x", due=due)
        future = broker.publish(lost, timeout=self.publish_timeout)

        error = await _error_of(future)
        assert isinstance(error, Unroutable)
        assert error.queue == "suite.nobody-declared-this"
        await self.publish(broker, message(queue, "the others go on", due=due))

    @case
    async def test_an_unroutable_message_does_not_affect_the_rest_of_its_batch(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        expected = [str(number) for number in range(40)]

        futures = [
            broker.publish(
                message("suite.nobody-declared-this" if text in ("7", "8", "39") else queue, text),
                timeout=self.publish_timeout,
            )
            for text in expected
        ]
        errors = {text: await _error_of(future) for text, future in zip(expected, futures, strict=True)}

        refused = [text for text, error in errors.items() if isinstance(error, Unroutable)]
        arrived = [text for text, error in errors.items() if error is None]
        assert refused == ["7", "8", "39"]
        assert arrived == [text for text in expected if text not in refused]
        await self.expect_only(broker, queue, *arrived)

    @case
    async def test_a_queue_declared_later_accepts_previously_rejected_messages(self) -> None:
        broker, other = self.broker(), self.broker()
        queue: WorkQueue = self.new_queue()
        first = broker.publish(message(queue.name, "too early"), timeout=self.publish_timeout)
        assert isinstance(await _error_of(first), Unroutable)

        await other.declare([queue])

        await self.send(broker, queue.name, "in time")
        await self.expect_only(broker, queue.name, "in time")

    @case
    async def test_an_oversized_message_is_rejected_and_the_broker_keeps_working(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        limit = broker.max_message_bytes
        assert limit >= 1_000_000, "the suite itself publishes messages of up to a megabyte"

        future = broker.publish(message(queue, bytes(limit + 1)), timeout=self.publish_timeout)

        error = await _error_of(future)
        assert isinstance(error, TooLarge)
        assert (error.size, error.limit) == (limit + 1, limit)
        await self.send(broker, queue, "small")
        await self.expect_only(broker, queue, "small")

    @case
    async def test_a_message_of_exactly_the_size_limit_is_accepted(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        size = min(broker.max_message_bytes, _LARGEST_TRIED)

        await self.publish(broker, message(queue, bytes(size)))

        inbox, _ = await self.consume(broker, queue)
        (received,) = await inbox.take_and_ack(1)
        assert len(received.body) == size

    @case
    async def test_overlong_names_are_published_or_rejected_with_an_intact_body(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        long = [
            replace(message(queue, "long id"), job_id="i" * 400),
            replace(message(queue, "long task"), task="t" * 400),
            replace(message(queue, "long root"), root="r" * 400),
            replace(message(queue, "long type"), content_type="c" * 400),
            replace(message(queue, "not text"), task="a\x00b\n"),
        ]

        futures = [broker.publish(each, timeout=self.publish_timeout) for each in long]
        errors = [await _error_of(future) for future in futures]

        assert all(error is None or isinstance(error, SendError) for error in errors), errors
        taken = [each.body.decode() for each, error in zip(long, errors, strict=True) if error is None]
        await self.expect_only(broker, queue, *taken)

    @case
    async def test_a_publish_with_zero_timeout_ends_at_once_either_way(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        futures = [broker.publish(message(queue, str(n)), timeout=0) for n in range(20)]
        done, _ = await asyncio.wait(futures, timeout=5)

        assert len(done) == len(futures)
        assert all(error is None or isinstance(error, SendError) for error in map(_outcome, futures))
        await self.send(broker, queue, "the broker goes on")


async def _error_of(future: asyncio.Future[None]) -> BaseException | None:
    await asyncio.wait({future})
    return future.exception()


def _outcome(future: asyncio.Future[None]) -> BaseException | None:
    return future.exception()
