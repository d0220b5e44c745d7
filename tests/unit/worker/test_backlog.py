"""What waits for a slot, and in which order it gets one."""

from collections import Counter, defaultdict, deque
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskmq.broker import Delivery
from taskmq.topology import CLASSES, PriorityClass, WorkQueue
from taskmq.worker.backlog import WEIGHTS, Backlog
from tests.unit.worker.staged import FakeDelivery

QUEUES = [WorkQueue("a"), WorkQueue("b"), WorkQueue("c")]
PHYSICAL = [name for queue in QUEUES for name in queue.physical]
CLASS_OF: dict[str, PriorityClass] = {
    name: kind for queue in QUEUES for kind, name in zip(CLASSES, queue.physical, strict=True)
}
HIGH, DEFAULT, LOW = QUEUES[0].physical


def _delivery(queue: str, number: int = 0) -> Delivery:
    return FakeDelivery(b"", queue=queue, message_id=str(number))


def _fill(backlog: Backlog, *queues: str, each: int, now: float = 0) -> None:
    for number in range(each):
        for queue in queues:
            backlog.put(_delivery(queue, number), now=now)


def _take(backlog: Backlog, count: int, *, now: float = 0) -> list[str]:
    taken = [backlog.take(now=now) for _ in range(count)]
    return [delivery.queue for delivery in taken if delivery is not None]


def _order(deliveries: list[Delivery]) -> dict[str, list[int]]:
    order: defaultdict[str, list[int]] = defaultdict(list)
    for delivery in deliveries:
        order[delivery.queue].append(int(delivery.message_id or 0))
    return order


class BacklogMachine(RuleBasedStateMachine):
    """A backlog beside a plain queue per physical queue."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(QUEUES, starvation_limit=30)
        self.model: dict[str, deque[Delivery]] = {name: deque() for name in PHYSICAL}
        self.now = 0.0
        self.number = 0

    @rule(queue=st.sampled_from(PHYSICAL), count=st.integers(1, 30))
    def put(self, queue: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            delivery = _delivery(queue, self.number)
            self.backlog.put(delivery, now=self.now)
            self.model[queue].append(delivery)

    @rule(count=st.integers(1, 40))
    def take(self, count: int) -> None:
        for _ in range(count):
            delivery = self.backlog.take(now=self.now)
            if delivery is None:
                assert not any(self.model.values()), "something waits, and nothing was handed out"
                return
            assert self.model[delivery.queue].popleft() is delivery, "a queue's order was not kept"

    @rule()
    def clear(self) -> None:
        rest = self.backlog.clear()
        assert _order(rest) == _order([delivery for lane in self.model.values() for delivery in lane])
        assert len(rest) == len({id(delivery) for delivery in rest})
        for lane in self.model.values():
            lane.clear()

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def counts(self) -> None:
        assert len(self.backlog) == sum(map(len, self.model.values()))

    def teardown(self) -> None:
        left = sum(map(len, self.model.values()))
        assert len(_take(self.backlog, left + 1, now=self.now)) == left


TestBacklog = BacklogMachine.TestCase


def test_an_empty_backlog_hands_out_nothing() -> None:
    backlog = Backlog(QUEUES)

    assert backlog.take(now=0) is None
    assert backlog.clear() == []


def test_classes_that_are_full_get_sixteen_four_and_one_of_twenty_one() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, HIGH, DEFAULT, LOW, each=200)

    for _ in range(5):
        assert Counter(_take(backlog, 21)) == {HIGH: 16, DEFAULT: 4, LOW: 1}


@given(waiting=st.sets(st.sampled_from(CLASSES), min_size=1))
def test_an_idle_classes_share_goes_to_those_that_wait(waiting: set[PriorityClass]) -> None:
    backlog = Backlog(QUEUES)
    weights = {kind: WEIGHTS[kind] for kind in waiting}
    queues = {kind: QUEUES[0].physical[CLASSES.index(kind)] for kind in waiting}
    _fill(backlog, *queues.values(), each=100)

    taken = Counter(_take(backlog, 2 * sum(weights.values())))

    assert taken == {queues[kind]: 2 * weight for kind, weight in weights.items()}


def test_a_class_that_was_idle_has_saved_nothing_up() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, LOW, each=500)
    _take(backlog, 400)
    _fill(backlog, HIGH, DEFAULT, each=100)

    assert _take(backlog, 42).count(HIGH) <= 32 + 16


def test_the_highest_class_comes_first() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, LOW, DEFAULT, HIGH, each=1)

    assert _take(backlog, 3) == [HIGH, DEFAULT, LOW]


def test_queues_of_one_class_take_turns() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, "a", "b", "c", each=20)

    taken = _take(backlog, 60)

    assert all(Counter(taken[i : i + 3]) == {"a": 1, "b": 1, "c": 1} for i in range(0, 60, 3))


def test_a_queue_that_comes_back_waits_for_its_turn() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, "a", "b", each=2)

    assert _take(backlog, 1) == ["a"]
    _fill(backlog, "c", each=1)
    assert _take(backlog, 4) == ["b", "a", "c", "b"]


def test_a_class_that_has_waited_too_long_gets_a_turn_out_of_order() -> None:
    backlog = Backlog(QUEUES, starvation_limit=30)
    _fill(backlog, HIGH, LOW, each=50)

    assert _take(backlog, 5, now=30) == [HIGH] * 5
    assert _take(backlog, 1, now=30.1) == [LOW]
    assert _take(backlog, 10, now=30.2) == [HIGH] * 10


def test_waiting_begins_when_the_first_delivery_comes() -> None:
    backlog = Backlog(QUEUES, starvation_limit=30)
    _fill(backlog, LOW, each=1, now=0)
    _take(backlog, 1, now=0)
    _fill(backlog, HIGH, LOW, each=5, now=1000)

    assert _take(backlog, 1, now=1001) == [HIGH]


@given(pause=st.floats(0.01, 10_000))
def test_slow_tasks_do_not_turn_the_priorities_upside_down(pause: float) -> None:
    """Where every turn takes longer than the starvation limit, all classes starve, and the weights still count."""
    backlog = Backlog(QUEUES, starvation_limit=30)
    _fill(backlog, HIGH, DEFAULT, LOW, each=300)

    taken = [queue for turn in range(210) for queue in _take(backlog, 1, now=turn * pause)]

    shares = Counter(taken)
    assert shares[HIGH] >= shares[DEFAULT] >= shares[LOW]
    assert shares[HIGH] >= 210 * 16 / 21 * 3 / 4 - 1


@given(pause=st.floats(0.01, 100), limit=st.floats(1, 100))
def test_no_class_waits_longer_than_the_limit_and_a_few_turns(pause: float, limit: float) -> None:
    backlog = Backlog(QUEUES, starvation_limit=limit)
    _fill(backlog, HIGH, DEFAULT, LOW, each=300)
    served: dict[str, list[float]] = {HIGH: [0.0], DEFAULT: [0.0], LOW: [0.0]}

    for turn in range(250):
        (queue,) = _take(backlog, 1, now=turn * pause)
        served[queue].append(turn * pause)

    for instants in served.values():
        waits = [after - before for before, after in pairwise([*instants, 249 * pause])]
        # Three classes, each out of order every fourth turn at most; or the weights' own round of 21.
        assert max(waits) <= limit + 12 * pause or max(waits) <= 21 * 4 / 3 * pause
