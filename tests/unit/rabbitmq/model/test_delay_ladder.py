from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import Binding, Exchange, Queue, delivery_binding, ladder

MOST = (1 << 28) - 1
queues = st.text("ab.*#0", min_size=1, max_size=9)
delays = st.one_of(
    st.integers(1, delay.MAX_DELAY_MS),
    st.integers(1, 100_000),
    st.integers(0, 27).flatmap(lambda bit: st.integers(-1, 1).map(lambda by: max(1, (125 << bit) + by))),
)


@given(st.integers(-(10**12), 10**12))
def test_units_round_up_and_stay_within_the_ladder(delay_ms: int) -> None:
    count = delay.units(delay_ms)

    assert 0 <= count <= MOST
    if delay_ms <= 0:
        assert count == 0
    elif delay_ms <= delay.MAX_DELAY_MS:
        assert (count - 1) * 125 < delay_ms <= count * 125
    else:
        assert count == MOST


@given(delays, queues, st.lists(queues, max_size=4))
def test_a_message_waits_exactly_its_units_and_reaches_only_its_queue(
    delay_ms: int, queue: str, others: list[str]
) -> None:
    broker = Broker({queue, *others})

    arrival = broker.publish(delay.ENTER, {queue, *delay.ways(delay_ms)})

    assert arrival == Arrival({queue}, delay.units(delay_ms) * 125)


@given(delays)
def test_a_message_waits_on_the_level_of_each_bit_once_and_on_the_longest_last(delay_ms: int) -> None:
    broker = Broker({"q"})

    broker.publish(delay.ENTER, {"q", *delay.ways(delay_ms)})

    count = delay.units(delay_ms)
    assert broker.waits == [delay.level_name(level) for level in range(delay.LEVELS) if count >> level & 1]


@pytest.mark.parametrize(
    ("delay_ms", "ways"),
    [
        (1, [">>0", ">0>"]),
        (125, [">>0", ">0>"]),
        (126, [">>1", ">1>"]),
        (1_000, [">>3", ">3>"]),
        (1_125, [">>0", ">0>3", ">3>"]),
        (125 * 0b100010001, [">>0", ">0>4", ">4>8", ">8>"]),
        (125 * 0b1000000001, [">>0", ">0~", ">4~", ">8>9", ">9>"]),
    ],
)
def test_the_bindings_lead_from_bit_to_bit(delay_ms: int, ways: list[str]) -> None:
    assert delay.ways(delay_ms) == ways


def test_the_longest_delay_waits_on_every_level() -> None:
    assert delay.units(10**15) == 2**28 - 1
    assert len(delay.ways(10**15)) == 29


def test_callers_may_change_the_returned_delay_keys() -> None:
    delay.ways(125).append("mine")

    assert delay.ways(125) == [">>0", ">0>"]


def test_all_exchanges_are_direct_and_the_bindings_are_few() -> None:
    entities = ladder()

    assert {entity.kind for entity in entities if isinstance(entity, Exchange)} == {"direct", "fanout"}
    assert sum(isinstance(entity, Binding) for entity in entities) == 181


def test_no_queue_has_the_name_of_a_delay_key() -> None:
    with pytest.raises(InvalidOption, match="queue name '>3>7': must not begin with '>'"):
        delivery_binding(">3>7")


def test_the_queue_of_a_message_is_derived_from_its_delay_keys() -> None:
    assert delay.destination({"CC": delay.ways(9_000)}, "images") == "images"
    assert delay.destination({"CC": ["copy"]}, "images") is None
    assert delay.destination({"CC": [7]}, "images") is None
    assert delay.destination({"CC": []}, "images") is None
    assert delay.destination({"CC": ">3>"}, "images") is None
    assert delay.destination({}, "images") is None


@given(st.integers(0, MOST), queues)
def test_the_queue_is_derived_from_the_bit_prefix_of_ladder_version_1_too(units: int, queue: str) -> None:
    assert delay.destination({}, ".".join(f"{units:028b}") + f".{queue}") == queue


@dataclass(frozen=True)
class Arrival:
    queues: set[str]
    waited_ms: int


class Broker:
    """Routes by the ladder's bindings like RabbitMQ, for each key of a message.

    Attributes:
        waits: the queues in which the message has waited.
    """

    def __init__(self, queues: set[str]) -> None:
        entities = ladder()
        self.bindings = [entity for entity in entities if isinstance(entity, Binding)]
        self.bindings += [delivery_binding(queue) for queue in queues]
        self.levels = {entity.name: entity.arguments for entity in entities if isinstance(entity, Queue)}
        self.waits: list[str] = []

    def publish(self, exchange: str, keys: set[str]) -> Arrival:
        targets = self.route(exchange, keys)
        parked = [target for target in targets if target in self.levels]
        if not parked:
            return Arrival({*targets}, 0)
        assert targets == parked
        assert len(parked) == 1
        self.waits.append(parked[0])
        level = self.levels[parked[0]]
        rest = self.publish(str(level["x-dead-letter-exchange"]), keys)
        return Arrival(rest.queues, rest.waited_ms + int(level["x-message-ttl"]))

    def route(self, exchange: str, keys: set[str]) -> list[str]:
        reached: list[str] = []
        for binding in self.bindings:
            if binding.source == exchange and binding.key in keys:
                is_passed = binding.target_kind == "exchange"
                reached += self.route(binding.target, keys) if is_passed else [binding.target]
        return reached
