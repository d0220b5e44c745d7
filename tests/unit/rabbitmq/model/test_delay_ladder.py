from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import Binding, Queue, delivery_binding, ladder

MOST = (1 << 28) - 1
words = st.text("ab*#0", min_size=1, max_size=4).filter(lambda word: word not in {"*", "#"})
queues = st.lists(words, min_size=1, max_size=5).map(".".join)
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
def test_a_message_waits_exactly_its_units_and_reaches_its_queue_only(
    delay_ms: int, queue: str, others: list[str]
) -> None:
    broker = Broker({queue, *others})

    arrival = broker.publish(*delay.route(delay_ms, queue))

    assert arrival == Arrival({queue}, delay.units(delay_ms) * 125)


@given(delays)
def test_a_delay_has_one_hop_for_each_bit_that_is_set(delay_ms: int) -> None:
    broker = Broker({"q"})

    broker.publish(*delay.route(delay_ms, "q"))

    assert broker.hops == delay.units(delay_ms).bit_count()


@pytest.mark.parametrize(
    ("delay_ms", "exchange", "units"),
    [
        (1, "taskmq.delay.v1.l00", 1),
        (125, "taskmq.delay.v1.l00", 1),
        (126, "taskmq.delay.v1.l01", 2),
        (1000, "taskmq.delay.v1.l03", 8),
        (10**15, "taskmq.delay.v1.l27", MOST),
    ],
)
def test_a_message_goes_in_at_its_highest_bit(delay_ms: int, exchange: str, units: int) -> None:
    entry, key = delay.route(delay_ms, "a.b")

    assert entry == exchange
    assert key == ".".join(f"{units:028b}") + ".a.b"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=199))
def test_a_routing_key_fits_where_the_name_has_199_bytes(name: str) -> None:
    while len(name.encode()) > 199:
        name = name[:-1]

    assert len(delay.route(1000, name)[1].encode()) <= 255
    assert len(delay.delivery_key(name).encode()) <= 255


@dataclass(frozen=True)
class Arrival:
    queues: set[str]
    waited_ms: int


class Broker:
    """Routes by the ladder's bindings as RabbitMQ does."""

    def __init__(self, queues: set[str]) -> None:
        entities = ladder()
        self.bindings = [entity for entity in entities if isinstance(entity, Binding)]
        self.bindings += [delivery_binding(queue) for queue in queues]
        self.levels = {entity.name: entity.arguments for entity in entities if isinstance(entity, Queue)}
        self.hops = 0

    def publish(self, exchange: str, key: str) -> Arrival:
        targets = self.route(exchange, key)
        parked = [target for target in targets if target in self.levels]
        if not parked:
            return Arrival(targets, 0)
        assert targets == {*parked}
        assert len(parked) == 1
        self.hops += 1
        level = self.levels[parked[0]]
        rest = self.publish(str(level["x-dead-letter-exchange"]), key)
        return Arrival(rest.queues, rest.waited_ms + int(level["x-message-ttl"]))

    def route(self, exchange: str, key: str) -> set[str]:
        reached: set[str] = set()
        for binding in self.bindings:
            if binding.source == exchange and fits(binding.key.split("."), key.split(".")):
                if binding.target_kind == "exchange":
                    reached |= self.route(binding.target, key)
                else:
                    reached.add(binding.target)
        return reached


def fits(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(fits(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in {"*", key[0]} and fits(pattern[1:], key[1:])
