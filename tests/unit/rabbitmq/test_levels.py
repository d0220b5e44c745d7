"""The fixed table of delays."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.broker import Delivery, Outgoing
from taskmq.errors import BrokerUnavailable
from taskmq.testing import FakeClock
from taskmq_rabbitmq import delay
from taskmq_rabbitmq.levels import LEVELS, PRECISION_MS, level_name, route
from taskmq_rabbitmq.outgoing import ETA
from taskmq_rabbitmq.reentry import Reentry
from taskmq_rabbitmq.topology import Binding, Exchange, Queue, levels, levels_marker
from tests.unit.worker.staged import FakeDelivery
from tests.unit.worker.virtual_time import run

DAY = 86_400_000


def journey(delay_ms: int) -> list[int]:
    """The levels that a message waits in, one after the other, when each hop takes no time."""
    taken: list[int] = []
    while delay_ms > 0:
        exchange, _ = route(delay_ms, "q")
        taken.append(next(ttl for ttl in LEVELS if level_name(ttl) == exchange))
        delay_ms -= taken[-1]
    return taken


@given(st.integers(1, 60 * DAY))
def test_a_message_waits_long_enough_and_not_much_longer(delay_ms: int) -> None:
    assert 0 <= sum(journey(delay_ms)) - delay_ms < PRECISION_MS


@given(st.integers(1, DAY))
def test_a_delay_below_a_day_takes_no_more_than_18_hops(delay_ms: int) -> None:
    assert len(journey(delay_ms)) <= 18


@pytest.mark.parametrize("level", LEVELS)
def test_a_delay_that_is_a_level_takes_one_hop_even_when_it_has_begun_already(level: int) -> None:
    assert journey(level) == journey(level - 1) == journey(level - PRECISION_MS + 1) == [level]


def test_the_table_and_its_names_are_part_of_its_version() -> None:
    assert [level_name(ttl).removeprefix("taskmq.delay.levels.v1.") for ttl in LEVELS] == [
        *("100ms", "200ms", "500ms", "1s", "2s", "5s", "10s", "20s", "30s"),
        *("1min", "2min", "5min", "10min", "30min", "1h", "3h", "6h", "12h", "1d"),
    ]
    assert list(LEVELS) == sorted(set(LEVELS))


@given(st.integers(1, 60 * DAY), st.text(min_size=1, max_size=20))
def test_what_leaves_a_level_takes_the_way_of_what_leaves_the_ladder(delay_ms: int, queue: str) -> None:
    _, key = route(delay_ms, queue)
    words, binding = key.split("."), delay.delivery_key(queue).split(".")
    assert len(words) == len(binding)
    assert all(pattern in ("*", word) for pattern, word in zip(binding, words, strict=True))
    assert delay.destination(key) == queue


def test_every_level_is_a_queue_that_ends_where_the_ladder_ends() -> None:
    entities = levels()
    queues = [entity for entity in entities if isinstance(entity, Queue)]
    assert [queue.arguments["x-message-ttl"] for queue in queues] == list(LEVELS)
    for queue in queues:
        assert queue.arguments["x-queue-type"] == "quorum"
        assert queue.arguments["x-dead-letter-exchange"] == delay.DELIVER
        assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
        assert queue.arguments["x-overflow"] == "reject-publish"
        # The routing key says where the message goes in the end.
        assert "x-dead-letter-routing-key" not in queue.arguments
        assert Exchange(queue.name, "fanout") in entities
        assert Binding(queue.name, queue.name) in entities
    assert entities[-1] == levels_marker()
    assert len({queue.name for queue in queues}) == len(LEVELS)


# Messages that come before their time ----------------------------------------------------------------------


class Stage:
    """A receiver, with a broker that confirms when the test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000)
        self.delivered: list[Delivery] = []
        self.published: list[tuple[Outgoing, asyncio.Future[None]]] = []
        self.receive = Reentry(
            self.delivered.append, self._publish, clock=self.clock, loop=asyncio.get_running_loop()
        )

    def _publish(self, message: Outgoing) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.published.append((message, future))
        return future


def early(due: int, body: object = None, **headers: object) -> FakeDelivery:
    data = json.dumps(body or {"task": "job", "enqueued": 17, "root": "r"}).encode()
    it = FakeDelivery(data, headers={ETA: due, **headers})
    it.task = "job"
    return it


def test_what_is_due_or_was_never_delayed_is_handed_over() -> None:
    async def main() -> None:
        stage = Stage()
        deliveries = [
            early(1_000_000),
            early(999_999),
            FakeDelivery(b"{}"),
            FakeDelivery(b"{}", headers={ETA: "soon"}),
        ]
        for delivery in deliveries:
            stage.receive(delivery)
        assert stage.delivered == deliveries
        assert not stage.published

    run(main())


def test_what_comes_early_is_published_again_and_acknowledged_after_the_confirm() -> None:
    async def main() -> None:
        stage = Stage()
        delivery = early(1_000_001, note="mine", number=7, table={"a": 1}, flag=True)
        stage.receive(delivery)
        assert not stage.delivered
        ((message, confirmed),) = stage.published
        assert (message.queue, message.body, message.due) == ("work", delivery.body, 1_000_001)
        assert (message.job_id, message.task, message.root, message.enqueued) == ("job-1", "job", "r", 17)
        assert message.headers == {ETA: 1_000_001, "note": "mine", "number": 7}
        assert delivery.settled is None
        confirmed.set_result(None)
        await asyncio.sleep(0)
        assert delivery.settled == "acked"

    run(main())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_cannot_be_published_again_goes_back_after_a_moment(is_cancelled: bool) -> None:
    async def main() -> None:
        stage = Stage()
        delivery = early(2_000_000)
        stage.receive(delivery)
        ((_, confirmed),) = stage.published
        if is_cancelled:
            confirmed.cancel()
        else:
            confirmed.set_exception(BrokerUnavailable("away"))
        await asyncio.sleep(0.5)
        assert delivery.settled is None
        await asyncio.sleep(0.6)
        assert delivery.settled == "requeued"

    run(main())


def test_garbage_waits_for_its_time_like_everything_else() -> None:
    async def main() -> None:
        stage = Stage()
        delivery: Any = FakeDelivery(b"\xff", content_type=None, message_id=None, headers={ETA: 2_000_000})
        stage.receive(delivery)
        ((message, _),) = stage.published
        assert (message.body, message.job_id, message.task, message.root) == (b"\xff", "", "", None)

    run(main())
