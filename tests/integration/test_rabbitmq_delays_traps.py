"""Faults of other delay ladders that lose or delay messages, with the protection of taskmq and without it.

Each fault is shown at the broker itself, on an unprotected ladder of the same shape under another name, or by an
unprotected publish. Where versions differ, each test says how.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pika.exceptions  # type: ignore[import-untyped]
import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.errors import PublishRejected
from taskmq.model.topology import UNROUTABLE, WorkQueue
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, raises
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import Binding, Exchange, delivery_binding
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.integration.raw_rabbitmq import OURS, Raw, level, short_ladder, stays
from tests.servers import RabbitMQ
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

NAME = "bare"
DELIVER = f"{NAME}.deliver"
# RabbitMQ's `dead_letter_worker_consumer_prefetch`.
IN_FLIGHT = 32


@pytest.fixture
def raw(amqp_url: str) -> Iterator[Raw]:
    with Raw(amqp_url) as it:
        yield it


@pytest.fixture
def version(rabbitmq_server: RabbitMQ) -> tuple[int, int]:
    major, minor, *_ = rabbitmq_server.version.split(".")
    return int(major), int(minor)


# Unroutable letters


@pytest.mark.parametrize(("lost", "is_stopped"), [(IN_FLIGHT - 1, False), (IN_FLIGHT, True)])
def test_without_an_alternate_exchange_32_letters_for_a_missing_queue_stop_a_level(
    raw: Raw, lost: int, is_stopped: bool
) -> None:
    raw.declare(*short_ladder(NAME, levels=1, has_alternate=False))
    raw.quorum("here")
    raw.declare(Binding(DELIVER, "here", "here"))
    for _ in range(lost):
        raw.publish_delayed(NAME, 1, "gone")
    raw.wait_until(lambda: raw.ready(level(NAME, 0)) == 0, "the letters have left")

    raw.publish_delayed(NAME, 1, "here", b"good")

    if is_stopped:
        assert stays(raw, lambda: raw.ready("here") == 0, seconds=2)
    else:
        assert raw.take("here").body == b"good"


def test_an_alternate_exchange_diverts_40_letters_for_a_missing_queue(raw: Raw, amqp_url: str) -> None:
    raw.declare(*short_ladder(OURS, levels=delay.LEVELS))
    raw.quorum("here")
    raw.declare(delivery_binding("here"))
    for _ in range(IN_FLIGHT + 8):
        raw.publish_delayed(OURS, 1, "gone")

    raw.publish_delayed(OURS, 1, "here", b"good")

    assert raw.take("here").body == b"good"
    raw.wait_until(lambda: raw.ready(UNROUTABLE) == IN_FLIGHT + 8, "the letters are put aside")


# Headers of the broker


def test_a_retry_that_copies_the_received_headers_is_lost_on_the_ladder_before_4_0(
    raw: Raw, version: tuple[int, int]
) -> None:
    raw.declare(*short_ladder(NAME, levels=2))
    raw.quorum("here")
    raw.declare(Binding(DELIVER, "here", "here"))
    raw.publish_delayed(NAME, 3, "here", b"first", headers={"note": "mine"})
    received = raw.take("here")
    assert "x-death" in received.properties.headers

    raw.publish_delayed(NAME, 3, "here", b"retry", headers=received.properties.headers)

    if version < (4, 0):
        # Considered a loop; kept forever by the level, in one of its 32 entries.
        assert stays(raw, lambda: raw.ready("here") == 0, seconds=2)
        assert raw.ready(UNROUTABLE) == raw.ready(level(NAME, 0)) == raw.ready(level(NAME, 1)) == 0
    else:
        assert raw.take("here").body == b"retry"


class TestCopies(RabbitMQCase):
    @case
    async def test_a_taskmq_retry_copies_no_broker_headers(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)
        headers: dict[str, Any] = {"note": "mine"}
        for number in range(3):
            # Due long after it is sent, even on a blocked machine: otherwise it goes directly to its queue.
            due = int(time.time() * 1000) + 2_000
            await broker.publish(message(queue, str(number), due=due, headers=headers), timeout=10)
            (delivery,) = await inbox.take_and_ack(1)
            assert delivery.body == b"%d" % number
            # All headers are copied into the next message.
            headers = dict(delivery.headers)
            assert headers.keys() == {"note", "x-taskmq-eta"}

    @case
    async def test_headers_that_would_be_routing_keys_cannot_be_sent(self) -> None:
        broker = self.broker()
        queue, copied = await self.queue(broker), await self.queue(broker)
        for name in ("CC", "BCC"):
            due = int(time.time() * 1000) + 200
            # The broker accepts only lists of keys, which no taskmq header can be.
            with raises(PublishRejected) as caught:
                await broker.publish(message(queue, "later", due=due, headers={name: copied}), timeout=10)
            assert "unacceptable_type_in_header" in str(caught[0])
        await self.expect_only(broker, copied)
        await self.expect_only(broker, queue)


def test_with_a_priority_a_due_message_waits_behind_an_urgent_one_on_4_0(raw: Raw, version: tuple[int, int]) -> None:
    raw.declare(*short_ladder(NAME, levels=5))
    raw.quorum("here")
    raw.declare(Binding(DELIVER, "here", "here"))
    sent = time.time()
    raw.publish_delayed(NAME, 16, "here", b"normal")
    raw.sleep(1.5)
    raw.publish_delayed(NAME, 16, "here", b"urgent", priority=9)

    came = [raw.take("here") for _ in range(2)]

    late = next(one.came for one in came if one.body == b"normal") - sent - 2
    if (4, 0) <= version < (4, 3):
        assert late > 1.2, f"{late:.2f} s late: this version no longer needs the protection"
    else:
        assert late < 1.2, f"{late:.2f} s late"


class TestProperties(RabbitMQCase):
    @case
    async def test_a_delayed_taskmq_message_has_neither_priority_nor_expiration(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        due = int(time.time() * 1000) + 1_500
        await broker.publish(
            Outgoing(
                queue=queue,
                body=b"{}",
                content_type="application/json",
                job_id="job-1",
                task="urgent",
                due=due,
                priority=9,
                headers={"x-taskmq-expires": due},
            ),
            timeout=10,
        )
        with Raw(self.process_url or "") as raw:
            seen = raw.take(queue)

        assert seen.properties.priority is None
        assert seen.properties.expiration is None
        assert "BCC" not in seen.properties.headers
        assert all(way.startswith(">") for way in seen.properties.headers["CC"])

    @case
    async def test_urgent_and_normal_delays_of_taskmq_do_not_wait_for_each_other(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)
        now = int(time.time() * 1000)

        def delayed_message(text: str, due: int, priority: int | None) -> Outgoing:
            return Outgoing(
                queue=queue,
                body=text.encode(),
                content_type="application/json",
                job_id=text,
                task="t",
                due=due,
                priority=priority,
            )

        # Both wait on the level of two seconds.
        await broker.publish(delayed_message("normal", now + 2000, None), timeout=10)
        await broker.publish(delayed_message("urgent", now + 3700, 9), timeout=10)

        assert bodies(await inbox.take_and_ack(1)) == ["normal"]
        assert bodies(await inbox.take_and_ack(1)) == ["urgent"]


def test_with_an_expiration_a_delayed_message_comes_early(raw: Raw) -> None:
    raw.declare(*short_ladder(NAME, levels=5))
    raw.quorum("here")
    raw.declare(Binding(DELIVER, "here", "here"))
    sent = time.time()

    raw.publish_delayed(NAME, 16, "here", expiration="100")

    assert raw.take("here").came - sent < 1.5


class TestNames(RabbitMQCase):
    @case
    async def test_queues_with_equal_suffixes_get_only_their_own_delayed_messages(self) -> None:
        broker = self.broker()
        first = await self.queue(broker)
        middle, last = first.partition(".")[2], first.partition(".")[0]
        queues = [first, middle, last, f"{first}.{first}"]
        await broker.declare([WorkQueue(name) for name in queues])
        due = int(time.time() * 1000) + 300

        await self.publish(broker, *(message(name, name, due=due) for name in queues))

        for name in queues:
            inbox, consumer = await self.consume(broker, name)
            assert bodies(await inbox.take_and_ack(1)) == [name]
            await consumer.stop()
        await self.expect_all(broker, first)


# The ladder of version 0.1


class TestVersion1(RabbitMQCase):
    @case
    async def test_a_message_on_the_ladder_of_version_1_reaches_its_queue_once(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        level_of_v1, deliver = "taskmq.delay.v1.l04", "taskmq.delay.v1.deliver"
        with Raw(self.process_url or "") as raw:
            raw.declare(
                Exchange(deliver, "topic", {"alternate-exchange": UNROUTABLE}),
                Exchange(level_of_v1, "topic"),
                Binding(deliver, queue, "*." * 28 + queue),
            )
            raw.quorum(level_of_v1, message_ttl=500, dead_letter_exchange=deliver)
            raw.declare(Binding(level_of_v1, level_of_v1, "*." * 23 + "1.#"))
            raw.publish(level_of_v1, f"{'0.' * 23}1.{'0.' * 4}{queue}", b"delayed before the update")

        inbox, consumer = await self.consume(broker, queue)
        await broker.publish(message(queue, "delayed since", due=int(time.time() * 1000) + 1_500), timeout=10)

        assert bodies(await inbox.take_and_ack(2)) == ["delayed before the update", "delayed since"]
        await consumer.stop()
        await self.expect_all(broker, queue)


def test_mandatory_proves_no_more_than_the_first_level(raw: Raw) -> None:
    raw.declare(*short_ladder(NAME, levels=2))

    # No error, although the queue has never existed; taskmq checks it first: `Unroutable`.
    raw.publish_delayed(NAME, 3, "never.was")

    raw.wait_until(lambda: raw.ready(UNROUTABLE) == 1, "it is put aside")


class TestTheOtherEnd(RabbitMQCase):
    @case
    async def test_a_queue_without_its_binding_is_bound_again_before_a_delay_for_it(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        bindings = await self.http("GET", f"queues/{{vhost}}/{queue}/bindings")
        (binding,) = [one for one in bindings if one["source"] == delay.DELIVER]
        path = f"bindings/{{vhost}}/e/{delay.DELIVER}/q/{queue}/{binding['properties_key']}"
        await self.http("DELETE", path)

        await broker.publish(message(queue, "one", due=int(time.time() * 1000) + 200), timeout=10)

        inbox, _ = await self.consume(broker, queue)
        assert bodies(await inbox.take_and_ack(1)) == ["one"]


class TestPolicies(RabbitMQCase):
    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_doctor.py::test_a_policy_for_everything_is_reported_with_all_that_it_breaks"
    )
    @case
    async def test_a_policy_with_a_message_ttl_for_everything_makes_delays_short(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.policy({"message-ttl": 300})
        level_queue = delay.level_name(delay.units(32_000).bit_length() - 1)
        await self.until_effective(level_queue, "message-ttl")
        due = int(time.time() * 1000) + 32_000

        await broker.publish(message(queue, "early", due=due), timeout=10)

        inbox, _ = await self.consume(broker, queue)
        await inbox.take_and_ack(1)
        # So a worker checks the time itself: tests/integration/test_rabbitmq_delays.py.
        assert time.time() * 1000 < due

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_doctor.py::test_a_policy_for_everything_is_reported_with_all_that_it_breaks"
    )
    @case
    async def test_a_policy_with_drop_head_turns_safe_dead_lettering_off(self) -> None:
        broker = self.broker()
        await self.queue(broker)
        with Raw(self.process_url or "") as raw:
            raw.quorum("full", max_length=1, overflow="reject-publish")
            raw.declare(delivery_binding("full"))
            in_the_way = 0
            with contextlib.suppress(pika.exceptions.NackError):
                while True:
                    raw.publish("", "full", b"in the way")
                    in_the_way += 1
            first = delay.level_name(0)
            raw.publish_delayed(OURS, 1, "full", b"kept")
            await self.until_counted(first, 1)
            # It is retried every three minutes, until there is room.
            await self.policy({"overflow": "drop-head"}, pattern=r"taskmq\.delay\..*")
            await self.until_effective(first, "overflow")
            raw.publish_delayed(OURS, 1, "full", b"lost")

            # Both are gone, even the one that waited for its confirm.
            await self.until_counted(first, 0)
            for _ in range(in_the_way):
                assert raw.take("full").body == b"in the way"
            assert raw.get("full") is None

    async def policy(self, definition: dict[str, object], *, pattern: str = ".*") -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 9}
        await self.http("PUT", "policies/{vhost}/everything", body)

    async def until_effective(self, queue: str, key: str) -> None:
        async def effective() -> bool:
            found = await self.http("GET", f"queues/{{vhost}}/{queue}")
            return key in (found.get("effective_policy_definition") or {})

        await until(effective)

    async def until_counted(self, queue: str, count: int) -> None:
        async def is_counted() -> bool:
            found = await self.http("GET", f"queues/{{vhost}}/{queue}")
            return bool(found.get("messages_dlx", -1) == count)

        await until(is_counted)


def test_a_delivery_limit_of_minus_one_destroys_returned_messages_before_4_0(
    raw: Raw, version: tuple[int, int]
) -> None:
    raw.quorum("unlimited", delivery_limit=-1)
    raw.publish("", "unlimited", b"one")
    raw.give_back("unlimited")
    if version < (4, 0):
        assert stays(raw, lambda: raw.ready("unlimited") == 0, seconds=1)
    else:
        raw.wait_until(lambda: raw.ready("unlimited") == 1, "it is back")


def test_the_limit_of_dead_letter_queues_destroys_nothing_and_keeps_their_order(raw: Raw) -> None:
    raw.quorum("letters", delivery_limit=2**31 - 1)
    for number in range(3):
        raw.publish("", "letters", b"%d" % number)
    for _ in range(50):
        assert raw.give_back("letters")
    assert [raw.take("letters").body for _ in range(3)] == [b"0", b"1", b"2"]


def test_without_a_limit_a_returned_message_loses_its_position_or_is_lost(raw: Raw, version: tuple[int, int]) -> None:
    raw.quorum("letters")
    for number in range(3):
        raw.publish("", "letters", b"%d" % number)
    for _ in range(25):
        raw.give_back("letters")
    if version < (4, 0):
        # No limit: each goes to the end, 25 times.
        expected = [b"1", b"2", b"0"]
    elif version < (4, 3):
        # An unrequested limit of 20: the first is gone.
        expected = [b"1", b"2"]
    else:
        # The same limit, but messages returned with basic.nack do not count.
        expected = [b"0", b"1", b"2"]
    assert [raw.take("letters").body for _ in expected] == expected
    assert raw.get("letters") is None
