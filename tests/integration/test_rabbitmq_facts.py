"""RabbitMQ's own behaviour, by version, on which our decisions rest; no taskmq code is tested here."""

import json
from collections.abc import Iterator

import pytest

from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ, StartRabbitMQ, eventually

pytestmark = pytest.mark.rabbitmq

REFUSED = 406


@pytest.fixture
def raw(amqp_url: str) -> Iterator[Raw]:
    with Raw(amqp_url) as it:
        yield it


@pytest.fixture
def version(rabbitmq_server: RabbitMQ) -> tuple[int, int]:
    major, minor, *_ = rabbitmq_server.version.split(".")
    return int(major), int(minor)


def test_quorum_queues_refuse_a_highest_priority(raw: Raw) -> None:
    assert raw.refusal("q", {"x-queue-type": "quorum", "x-max-priority": 4}) == REFUSED


def test_quorum_queues_accept_the_largest_delivery_limit(raw: Raw) -> None:
    assert raw.refusal("q", {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}) == 0


def test_classic_queues_refuse_a_consumer_timeout_from_4_3_on(raw: Raw, version: tuple[int, int]) -> None:
    code = raw.refusal("q", {"x-queue-type": "classic", "x-consumer-timeout": 60_000})
    assert code == (REFUSED if version >= (4, 3) else 0)


def test_arguments_unknown_to_a_version_are_kept_and_not_compared(raw: Raw) -> None:
    arguments = {"x-queue-type": "quorum", "x-of-the-future": 1}
    assert raw.refusal("q", arguments) == 0
    assert raw.refusal("q", arguments | {"x-of-the-future": 2}) == 0


def test_a_known_argument_that_is_missing_is_refused(raw: Raw) -> None:
    assert raw.refusal("q", {"x-queue-type": "quorum", "x-delivery-limit": 5}) == 0
    assert raw.refusal("q", {"x-queue-type": "quorum"}) == REFUSED


def test_a_transient_queue_without_an_owner_is_still_accepted(raw: Raw) -> None:
    assert raw.refusal("q", {"x-queue-type": "classic"}, durable=False) == 0


def test_the_highest_priority_of_a_classic_queue_starves_the_others(raw: Raw) -> None:
    raw.channel.queue_declare("q", durable=True, arguments={"x-queue-type": "classic", "x-max-priority": 4})
    for _ in range(5):
        raw.publish("", "q", b"low", priority=0)
    raw.publish("", "q", b"high", priority=4)

    came: list[bytes] = []
    for _ in range(60):
        came.append(raw.take("q").body)
        raw.publish("", "q", b"high", priority=4)

    assert came == [b"high"] * 60


def test_quorum_queues_support_priorities_in_three_ways(raw: Raw, version: tuple[int, int]) -> None:
    raw.quorum("q")
    for _ in range(6):
        raw.publish("", "q", b"normal")
    for priority in (9, 9, 9, 20, 20, 20):
        raw.publish("", "q", b"%d" % priority, priority=priority)

    came = [raw.take("q").body for _ in range(12)]

    if version < (4, 0):
        assert came == [b"normal"] * 6 + [b"9"] * 3 + [b"20"] * 3
    elif version < (4, 3):
        # Two classes, two high ones to one normal one, each in order.
        assert [body for body in came if body != b"normal"] == [b"9"] * 3 + [b"20"] * 3
        assert came[:6].count(b"normal") == 2
    else:
        assert came == [b"20"] * 3 + [b"9"] * 3 + [b"normal"] * 6


@pytest.mark.campaign
def test_a_node_that_dies_at_once_forgets_the_queue_declared_last(
    own_rabbitmq: StartRabbitMQ,
) -> None:
    node = own_rabbitmq()
    with Raw(node.url) as raw:
        for queue in ("first", "last"):
            raw.quorum(queue)
            raw.publish("", queue, b"confirmed")

    node.kill()
    node.start()

    def count_messages() -> dict[str, int]:
        rows = json.loads(node.ctl("list_queues", "--formatter", "json", "name", "messages"))
        return {row["name"]: row["messages"] for row in rows}

    # Before 4.3 it never has a leader again either.
    eventually(lambda: count_messages() == {"first": 1, "last": 0}, "one message, not two")
