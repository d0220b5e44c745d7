"""Letters created by RabbitMQ itself, and letter queues too long for memory."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pika  # type: ignore[import-untyped]  # it carries no types
import pytest

from taskmq.contracts.broker import Broker, BrokerOptions, Outgoing
from taskmq.contracts.topology_plan import Plannable
from taskmq.errors import BrokerUnavailable
from taskmq.model.topology import UNROUTABLE, WorkQueue
from taskmq.operations.dead_letters import Replayed, browse, purge, replay, visit
from taskmq.testing.broker_suite.case import peek
from taskmq_rabbitmq import open_broker
from tests.servers import TcpProxy, eventually

pytestmark = pytest.mark.rabbitmq

T = TypeVar("T")
_TIMEOUT = 10.0
_PATIENCE = timedelta(seconds=40)


@pytest.fixture(params=["fast", pytest.param("plain", marks=pytest.mark.matrix)])
def url(amqp_url: str, request: pytest.FixtureRequest) -> str:
    return f"{amqp_url}?wire={request.param}"


@pytest.fixture
def channel(amqp_url: str) -> Iterator[Any]:
    """Open a channel of a foreign client."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        yield connection.channel()


def _with(url: str, use: Callable[[Broker], Awaitable[T]]) -> T:
    async def main() -> T:
        broker = open_broker(url, BrokerOptions(name="test"))
        try:
            async with asyncio.timeout(50):
                return await use(broker)
        finally:
            await broker.aclose()

    return asyncio.run(main())


def _message(queue: str, name: str, *, due: int | None = None) -> Outgoing:
    body = f'{{"id": "{name}", "task": "shop.resize"}}'.encode()
    return Outgoing(queue=queue, body=body, content_type="application/json", job_id=name, task="shop.resize", due=due)


def _declare(url: str, *queues: str) -> None:
    """Declare all parts of the queues like `topology apply`: RabbitMQ's own dead lettering creates no queue."""

    async def apply(broker: Broker) -> None:
        assert isinstance(broker, Plannable)
        await broker.topology([WorkQueue(name) for name in queues]).create_missing()

    _with(url, apply)


def _send(url: str, queue: str, *names: str, due: int | None = None) -> None:
    async def send(broker: Broker) -> None:
        await broker.declare([WorkQueue("images")])
        for name in names:
            await broker.publish(_message(queue, name, due=due), timeout=_TIMEOUT)

    _with(url, send)


def _names(url: str, queue: str) -> list[str]:
    async def look(broker: Broker) -> list[str]:
        async with peek(broker, queue, limit=10_000) as held:
            return [delivery.message_id or "" for delivery in held]

    return _with(url, look)


def _get(channel: Any, queue: str) -> Any:
    return eventually(lambda: channel.basic_get(queue)[0], f"a message in {queue}")


def _wait_until_bound(url: str, queue: str, count: int) -> None:
    async def ready(broker: Broker) -> int:
        return sum([stats.ready for stats in await broker.stats([queue])])

    eventually(lambda: _with(url, ready) == count, f"{count} messages in {queue}", within=_PATIENCE)


def test_a_message_over_the_delivery_limit_tells_so_and_is_replayed_to_its_class(url: str, channel: Any) -> None:
    _declare(url, "images")
    _send(url, "images.p.high", "a")
    for _ in range(101):
        channel.basic_reject(_get(channel, "images.p.high").delivery_tag, requeue=True)
    _wait_until_bound(url, "images.dlq", 1)
    before = time.time()

    (letter,) = _with(url, lambda broker: browse(broker, "images", limit=5))
    done = _with(url, lambda broker: replay(broker, "images", timeout=_TIMEOUT))

    assert (letter.reason, letter.queue, letter.job_id) == ("delivery_limit", "images.p.high", "a")
    assert letter.died is not None
    assert abs(letter.died / 1000 - before) < 60
    assert done == Replayed(replayed=1)
    assert _names(url, "images.p.high") == ["a"]


def test_a_message_rejected_after_a_delay_does_not_name_the_ladder_as_its_origin(url: str, channel: Any) -> None:
    _declare(url, "images")
    _send(url, "images.p.low", "a", due=int(time.time() * 1000) + 400)
    channel.basic_reject(_get(channel, "images.p.low").delivery_tag, requeue=False)
    _wait_until_bound(url, "images.dlq", 1)

    (letter,) = _with(url, lambda broker: browse(broker, "images", limit=5))

    assert (letter.reason, letter.queue) == ("rejected", "images.p.low")


def test_messages_whose_queue_was_deleted_during_their_delay_return_once_it_exists(url: str, channel: Any) -> None:
    _declare(url, "images", "shop.gone")
    now = int(time.time() * 1000)
    _send(url, "shop.gone.p.low", "low", due=now + 1_000)
    _send(url, "shop.gone", "default", due=now + 1_300)
    for name in ("shop.gone", "shop.gone.p.low"):
        channel.queue_delete(name)
    _wait_until_bound(url, UNROUTABLE, 2)

    letters = _with(url, lambda broker: browse(broker, UNROUTABLE, limit=5))
    _declare(url, "shop.gone")
    done = _with(url, lambda broker: replay(broker, UNROUTABLE, timeout=_TIMEOUT))

    assert [(letter.job_id, letter.queue, letter.reason) for letter in letters] == [
        ("low", "shop.gone.p.low", "unroutable"),
        ("default", "shop.gone", "unroutable"),
    ]
    assert all(letter.died is not None and letter.died >= now - 1_000 for letter in letters)
    assert done == Replayed(replayed=2)
    assert (_names(url, "shop.gone.p.low"), _names(url, "shop.gone")) == (["low"], ["default"])
    assert _names(url, UNROUTABLE) == []


def test_a_letter_whose_dead_letter_queue_is_gone_still_names_its_origin(url: str, channel: Any) -> None:
    _declare(url, "images")
    _send(url, "images.p.high", "a")
    channel.queue_delete("images.dlq")
    channel.basic_reject(_get(channel, "images.p.high").delivery_tag, requeue=False)
    _wait_until_bound(url, UNROUTABLE, 1)

    (letter,) = _with(url, lambda broker: browse(broker, UNROUTABLE, limit=5))

    assert (letter.queue, letter.reason) == ("images.p.high", "rejected")


def test_foreign_death_headers_are_not_shown_on_jobs(url: str, channel: Any) -> None:
    _declare(url, "images")
    forged = {"x-death": [{"queue": "other", "reason": "rejected", "time": datetime.now(UTC)}], "whose": "mine"}
    channel.basic_publish("", "images", b"{}", pika.BasicProperties(headers=forged))
    _wait_until_bound(url, "images", 1)

    async def headers(broker: Broker) -> dict[str, object]:
        async with peek(broker, "images", limit=1) as (delivery,):
            return dict(delivery.headers)

    assert _with(url, headers) == {"whose": "mine"}


def test_a_letter_with_unreadable_headers_is_inspected_and_deleted(amqp_url: str) -> None:
    _declare(amqp_url, "images")

    class Late(datetime):
        """An instant that AMQP carries and Python's dates do not; pika encodes it by its time tuple."""

        def utctimetuple(self) -> Any:
            return (9999, 12, 31, 10**9, 0, 0, 0, 1, 0)

    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        properties = pika.BasicProperties(message_id="odd", headers={"when": Late(2026, 1, 1, tzinfo=UTC)})
        connection.channel().basic_publish("", "images.dlq", b"{}", properties)
    _wait_until_bound(amqp_url, "images.dlq", 1)

    (letter,) = _with(amqp_url, lambda broker: browse(broker, "images", limit=5))
    count = _with(amqp_url, lambda broker: purge(broker, "images", limit=1))

    assert (letter.job_id, letter.headers, count) == ("odd", {}, 1)


# Long queues


def _fill(url: str, count: int) -> list[str]:
    names = [f"{number:05}" for number in range(count)]

    async def fill(broker: Broker) -> None:
        await broker.declare([WorkQueue("images")])
        await asyncio.gather(*(broker.publish(_message("images.dlq", name), timeout=30) for name in names))

    _with(url, fill)
    return names


def test_a_long_queue_keeps_its_order_after_deep_and_shallow_reads(amqp_url: str) -> None:
    names = _fill(amqp_url, 3_000)

    async def look(broker: Broker) -> list[list[str]]:
        seen: list[list[str]] = []
        for limit in (40, 3_000, 40, 600, 3_000):
            letters = await browse(broker, "images", limit=limit)
            seen.append([letter.job_id for letter in letters])
        return seen

    assert _with(amqp_url, look) == [names[:40], names, names[:40], names[:600], names]


def test_deleting_some_letters_of_a_long_queue_keeps_the_order_of_the_rest(amqp_url: str) -> None:
    names = _fill(amqp_url, 2_000)

    count = _with(
        amqp_url, lambda broker: purge(broker, "images", choose=lambda letter: letter.job_id[-1] in "13579")
    )

    assert count == 1_000
    assert _names(amqp_url, "images.dlq") == names[::2]


def test_letters_of_an_interrupted_walk_all_return(amqp_url: str) -> None:
    names = _fill(amqp_url, 1_000)
    with TcpProxy(urlsplit(amqp_url).port or 5672) as proxy:
        through = urlsplit(amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()

        async def look(broker: Broker) -> None:
            seen = itertools.count(1)

            def see(_: object) -> None:
                if next(seen) == 100:
                    proxy.cut()

            await visit(broker, "images", see)

        with pytest.raises(BrokerUnavailable):
            _with(through, look)

    _wait_until_bound(amqp_url, "images.dlq", 1_000)
    assert sorted(_names(amqp_url, "images.dlq")) == names
