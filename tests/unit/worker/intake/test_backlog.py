"""Deliveries that wait for a slot, and the order in which they get one."""

from collections import Counter, defaultdict, deque
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskmq.contracts.broker import Delivery
from taskmq.model.topology import CLASSES, PriorityClass, WorkQueue
from taskmq.worker.intake.backlog import WEIGHTS, Backlog
from tests.unit.worker.staged import FakeDelivery

QUEUES = [WorkQueue("a"), WorkQueue("b"), WorkQueue("c")]
PHYSICAL = [name for queue in QUEUES for name in queue.physical[:3]]
CLASS_OF: dict[str, PriorityClass] = {
    name: kind for queue in QUEUES for kind, name in zip(CLASSES, queue.physical[:3], strict=True)
}
HIGH, DEFAULT, LOW = QUEUES[0].physical[:3]


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
                assert not any(self.model.values()), "jobs wait, but none was returned"
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


def test_an_empty_backlog_returns_nothing() -> None:
    backlog = Backlog(QUEUES)

    assert backlog.take(now=0) is None
    assert backlog.clear() == []


def test_full_classes_get_sixteen_four_and_one_of_twenty_one() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, HIGH, DEFAULT, LOW, each=200)

    for _ in range(5):
        assert Counter(_take(backlog, 21)) == {HIGH: 16, DEFAULT: 4, LOW: 1}


@given(waiting=st.sets(st.sampled_from(CLASSES), min_size=1))
def test_the_share_of_an_idle_class_goes_to_waiting_ones(waiting: set[PriorityClass]) -> None:
    backlog = Backlog(QUEUES)
    weights = {kind: WEIGHTS[kind] for kind in waiting}
    queues = {kind: QUEUES[0].physical[CLASSES.index(kind)] for kind in waiting}
    _fill(backlog, *queues.values(), each=100)

    taken = Counter(_take(backlog, 2 * sum(weights.values())))

    assert taken == {queues[kind]: 2 * weight for kind, weight in weights.items()}


def test_a_class_that_was_idle_saves_no_turns() -> None:
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


def test_a_returning_queue_waits_for_its_turn() -> None:
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


def test_waiting_begins_with_the_first_delivery() -> None:
    backlog = Backlog(QUEUES, starvation_limit=30)
    _fill(backlog, LOW, each=1, now=0)
    _take(backlog, 1, now=0)
    _fill(backlog, HIGH, LOW, each=5, now=1000)

    assert _take(backlog, 1, now=1001) == [HIGH]


@given(pause=st.floats(0.01, 10_000))
def test_slow_tasks_do_not_invert_the_priorities(pause: float) -> None:
    """If every turn takes longer than the starvation limit, all classes starve, and the weights still count."""
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


_weights = st.fixed_dictionaries({kind: st.integers(1, 50) for kind in CLASSES})


@given(weights=_weights, waiting=st.sets(st.sampled_from(CLASSES), min_size=1), rounds=st.integers(1, 4))
def test_the_shares_of_full_classes_are_their_weights(
    weights: dict[PriorityClass, int], waiting: set[PriorityClass], rounds: int
) -> None:
    backlog = Backlog(QUEUES, weights=weights)
    queues = {kind: QUEUES[0].physical[CLASSES.index(kind)] for kind in waiting}
    _fill(backlog, *queues.values(), each=rounds * 50)

    taken = Counter(_take(backlog, rounds * sum(weights[kind] for kind in waiting)))

    assert taken == {queues[kind]: rounds * weights[kind] for kind in waiting}


@given(weights=_weights, count=st.integers(1, 300))
def test_no_class_is_ever_more_than_a_round_away_from_its_share(
    weights: dict[PriorityClass, int], count: int
) -> None:
    backlog = Backlog(QUEUES, weights=weights)
    _fill(backlog, HIGH, DEFAULT, LOW, each=300)

    taken = Counter(_take(backlog, count))

    total = sum(weights.values())
    for kind, queue in zip(CLASSES, (HIGH, DEFAULT, LOW), strict=True):
        assert abs(taken[queue] - count * weights[kind] / total) <= weights[kind]


_arrivals = st.lists(
    st.tuples(st.sampled_from(PHYSICAL), st.integers(0, 5), st.integers(0, 3), st.floats(0, 20)), max_size=60
)


@given(weights=_weights, strict=st.booleans(), arrivals=_arrivals)
def test_a_nonempty_backlog_always_returns_a_delivery(
    weights: dict[PriorityClass, int], strict: bool, arrivals: list[tuple[str, int, int, float]]
) -> None:
    backlog, waiting, now = Backlog(QUEUES, weights=weights, strict=strict), 0, 0.0
    for queue, count, takes, pause in arrivals:
        now += pause
        _fill(backlog, queue, each=count, now=now)
        waiting += count
        taken = len(_take(backlog, takes, now=now))
        assert taken == min(takes, waiting)
        waiting -= taken
    assert len(_take(backlog, waiting + 1, now=now)) == waiting


@given(arrivals=_arrivals)
def test_strict_mode_always_prefers_a_higher_class(
    arrivals: list[tuple[str, int, int, float]],
) -> None:
    backlog, now = Backlog(QUEUES, strict=True, starvation_limit=1), 0.0
    waiting: Counter[PriorityClass] = Counter()
    for queue, count, takes, pause in arrivals:
        now += pause
        _fill(backlog, queue, each=count, now=now)
        waiting[CLASS_OF[queue]] += count
        for taken in _take(backlog, takes, now=now):
            highest = next(kind for kind in CLASSES if waiting[kind])
            assert CLASS_OF[taken] == highest
            waiting[highest] -= 1


# The reserved slot


def test_every_slot_is_shared_without_high_jobs() -> None:
    backlog = Backlog(QUEUES, slots=4)
    _fill(backlog, DEFAULT, each=5)

    assert _take(backlog, 4) == [DEFAULT] * 4


def test_one_slot_is_reserved_once_a_high_job_has_come() -> None:
    backlog = Backlog(QUEUES, slots=4)
    _fill(backlog, HIGH, each=1)
    assert _take(backlog, 1) == [HIGH]
    backlog.leave(HIGH, now=0)
    _fill(backlog, DEFAULT, LOW, each=5)

    assert len(_take(backlog, 3)) == 3
    assert backlog.take(now=0) is None
    assert len(backlog) == 7
    _fill(backlog, HIGH, each=1)
    assert _take(backlog, 1) == [HIGH]
    backlog.leave(DEFAULT, now=0)
    assert len(_take(backlog, 2)) == 1


def test_high_jobs_may_use_every_slot() -> None:
    backlog = Backlog(QUEUES, slots=4)
    _fill(backlog, HIGH, each=4)

    assert _take(backlog, 4) == [HIGH] * 4


def test_the_slot_is_reserved_for_five_minutes_after_the_last_high_job() -> None:
    backlog = Backlog(QUEUES, slots=4)
    _fill(backlog, HIGH, each=1, now=0)
    _take(backlog, 1)
    _fill(backlog, DEFAULT, each=4)
    assert len(_take(backlog, 4, now=0)) == 3

    assert backlog.take(now=299.9) is None
    assert _queue_of(backlog.take(now=300)) == DEFAULT


def test_three_slots_reserve_none() -> None:
    backlog = Backlog(QUEUES, slots=3)
    _fill(backlog, HIGH, each=1)
    _take(backlog, 1)
    backlog.leave(HIGH, now=0)
    _fill(backlog, LOW, each=3)

    assert _take(backlog, 3) == [LOW] * 3


@given(weights=_weights, slots=st.integers(4, 8))
def test_the_reserved_slot_changes_no_shares(weights: dict[PriorityClass, int], slots: int) -> None:
    """Every slot is always in use, and the one in use for the longest time becomes free."""
    backlog, busy = Backlog(QUEUES, slots=slots, weights=weights), deque[str]()
    _fill(backlog, HIGH, DEFAULT, LOW, each=60 * slots)
    taken: Counter[str] = Counter()
    for _ in range(50 * slots):
        if len(busy) == slots:
            backlog.leave(busy.popleft(), now=0)
        (queue,) = _take(backlog, 1)
        busy.append(queue)
        taken[queue] += 1
        # Never more than all but one.
        assert sum(each != HIGH for each in busy) < slots

    total = sum(weights.values())
    if weights["high"] * slots >= total * 2:
        # Well above the one reserved slot; a share below it is raised to it.
        for kind, queue in zip(CLASSES, (HIGH, DEFAULT, LOW), strict=True):
            assert abs(taken[queue] - 50 * slots * weights[kind] / total) <= total


_ORDERED = WorkQueue("o", ordered=3)
_NATIVE = WorkQueue("n", "classic", priorities="native")
_SHARD, _SECOND, _THIRD = _ORDERED.always


def test_a_queue_with_native_priorities_and_shards_are_of_the_medium_class() -> None:
    backlog = Backlog([_NATIVE, _ORDERED, *QUEUES])
    _fill(backlog, HIGH, "n", LOW, each=100)
    assert Counter(_take(backlog, 21)) == {HIGH: 16, "n": 4, LOW: 1}

    backlog = Backlog([_NATIVE, _ORDERED, *QUEUES])
    _fill(backlog, _SHARD, LOW, HIGH, each=1)
    assert _take(backlog, 3) == [HIGH, _SHARD, LOW]


def test_the_next_job_of_a_shard_follows_the_end_of_the_previous_one() -> None:
    backlog = Backlog([_ORDERED])
    _fill(backlog, _SHARD, _SECOND, each=2)

    assert _take(backlog, 4) == [_SHARD, _SECOND]
    backlog.release(_SHARD, now=0)
    assert _take(backlog, 4) == [_SHARD]
    backlog.release(_SHARD, now=0)
    backlog.release(_SECOND, now=0)
    assert _take(backlog, 4) == [_SECOND]
    assert len(backlog) == 0


def test_a_returned_job_precedes_the_rest_of_its_shard() -> None:
    backlog = Backlog([_ORDERED])
    _fill(backlog, _SHARD, each=1)
    (first,) = [backlog.take(now=0)]
    assert first is not None
    backlog.put(_delivery(_SHARD, 2), now=0)

    backlog.release(_SHARD, now=0)
    backlog.put(first, now=0, first=True)

    assert backlog.take(now=0) is first
    assert backlog.take(now=0) is None


def test_jobs_behind_a_running_one_are_returned_with_the_rest() -> None:
    backlog = Backlog([_ORDERED])
    _fill(backlog, _SHARD, each=3)
    _take(backlog, 1)

    assert [delivery.message_id for delivery in backlog.clear()] == ["1", "2"]
    backlog.release(_SHARD, now=0)
    assert backlog.take(now=0) is None


def test_a_release_of_another_queue_is_ignored() -> None:
    backlog = Backlog([_ORDERED, *QUEUES])
    _fill(backlog, DEFAULT, each=2)
    _take(backlog, 1)

    backlog.release(DEFAULT, now=0)
    backlog.release(_SHARD, now=0)

    assert _take(backlog, 2) == [DEFAULT]


class ShardMachine(RuleBasedStateMachine):
    """Shards beside a plain queue each, and the shards with a running job."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog([_ORDERED, WorkQueue("a")])
        self.model: dict[str, deque[Delivery]] = {name: deque() for name in (*_ORDERED.always, "a")}
        self.out: dict[str, Delivery] = {}
        self.number = 0

    @rule(queue=st.sampled_from([*_ORDERED.always, "a"]))
    def put(self, queue: str) -> None:
        self.number += 1
        delivery = _delivery(queue, self.number)
        self.backlog.put(delivery, now=0)
        self.model[queue].append(delivery)

    @rule()
    def take(self) -> None:
        delivery = self.backlog.take(now=0)
        startable = [queue for queue, lane in self.model.items() if lane and queue not in self.out]
        if delivery is None:
            assert not startable
            return
        assert delivery.queue in startable
        assert self.model[delivery.queue].popleft() is delivery
        if delivery.queue != "a":
            self.out[delivery.queue] = delivery

    @rule(queue=st.sampled_from(_ORDERED.always))
    def release(self, queue: str) -> None:
        self.backlog.release(queue, now=0)
        self.out.pop(queue, None)

    @rule(queue=st.sampled_from(_ORDERED.always))
    def again(self, queue: str) -> None:
        if (delivery := self.out.pop(queue, None)) is not None:
            self.backlog.release(queue, now=0)
            self.backlog.put(delivery, now=0, first=True)
            self.model[queue].appendleft(delivery)

    @invariant()
    def counts(self) -> None:
        assert len(self.backlog) == sum(map(len, self.model.values()))


TestShards = ShardMachine.TestCase


def _queue_of(delivery: Delivery | None) -> str | None:
    return None if delivery is None else delivery.queue


def test_a_queue_with_a_limit_shares_its_slots_among_all_classes() -> None:
    backlog = Backlog(QUEUES, limits={"a": 2})
    _fill(backlog, HIGH, DEFAULT, PHYSICAL[4], each=2)

    taken = _take(backlog, 6)

    assert taken.count(HIGH) + taken.count(DEFAULT) == 2
    assert taken.count(PHYSICAL[4]) == 2
    assert len(backlog) == 2
    assert backlog.take(now=0) is None
    backlog.leave(HIGH, now=0)
    assert _take(backlog, 2) == [DEFAULT]
    backlog.leave(HIGH, now=0)
    backlog.leave(DEFAULT, now=0)
    assert _take(backlog, 3) == [DEFAULT]


def test_a_delivery_with_a_new_slot_counts_for_the_limit_of_its_queue() -> None:
    backlog = Backlog(QUEUES, limits={"a": 1})
    _fill(backlog, DEFAULT, each=2)
    assert _take(backlog, 2) == [DEFAULT]
    backlog.leave(DEFAULT, now=0)
    backlog.enter(DEFAULT)

    assert _take(backlog, 1) == []
    backlog.leave(DEFAULT, now=0)
    assert _take(backlog, 1) == [DEFAULT]


def test_a_full_queue_accepts_more_without_returning_it() -> None:
    backlog = Backlog(QUEUES, limits={"a": 1})
    _fill(backlog, DEFAULT, each=1)
    assert _take(backlog, 1) == [DEFAULT]

    _fill(backlog, DEFAULT, HIGH, each=3)

    assert _take(backlog, 1) == []
    assert len(backlog.clear()) == 6


def test_the_surplus_of_a_queue_is_removed_from_its_end() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, DEFAULT, HIGH, each=5)

    surplus = backlog.shed(DEFAULT, keep=2)

    assert [delivery.message_id for delivery in surplus] == ["2", "3", "4"]
    assert backlog.shed(DEFAULT, keep=2) == []
    assert [delivery.message_id for delivery in backlog.shed(DEFAULT, keep=0)] == ["0", "1"]
    assert sorted(_take(backlog, 10)) == [HIGH] * 5


def test_additional_slots_reserve_one_for_high_jobs_again() -> None:
    backlog = Backlog(QUEUES, slots=1)
    _fill(backlog, HIGH, each=1)
    assert _take(backlog, 1) == [HIGH]
    backlog.leave(HIGH, now=0)
    backlog.resize(4)
    _fill(backlog, DEFAULT, each=4)

    assert _take(backlog, 4) == [DEFAULT] * 3


def test_removed_deliveries_do_not_change_the_order_of_the_rest() -> None:
    backlog = Backlog(QUEUES)
    _fill(backlog, HIGH, DEFAULT, each=3)
    waiting = list(backlog.deliveries())
    unwanted = {delivery for delivery in waiting if delivery.queue == HIGH or delivery.message_id == "1"}

    assert _order(backlog.retract(unwanted)) == {HIGH: [0, 1, 2], DEFAULT: [1]}

    assert len(backlog) == 2
    assert backlog.retract(unwanted) == []
    assert _take(backlog, 3) == [DEFAULT, DEFAULT]
    backlog.put(_delivery(HIGH), now=0)
    assert _take(backlog, 2) == [HIGH]


def test_a_queue_with_a_share_starts_its_number_of_jobs_in_a_row() -> None:
    backlog = Backlog(QUEUES, shares={"a": 3})
    _fill(backlog, "a", "b", each=8)

    assert "".join(_take(backlog, 16)) == "aaabaaabaabbbbbb"


def test_a_share_belongs_to_each_class_and_is_not_saved_up() -> None:
    backlog = Backlog(QUEUES, shares={"b": 2})
    _fill(backlog, "b", each=1)
    assert _take(backlog, 1) == ["b"]
    _fill(backlog, "a", "b", each=4)

    assert "".join(_take(backlog, 8)) == "abbabbaa"


def test_lanes_take_turns_and_the_slow_one_is_of_the_low_class() -> None:
    backlog = Backlog([WorkQueue("mail", lanes=2)])
    _fill(backlog, "mail.p.low", "mail.lane00", each=20)
    assert Counter(_take(backlog, 20)) == {"mail.lane00": 16, "mail.p.low": 4}
    _fill(backlog, "mail.lane01", "mail", "mail.jobs", each=4)

    taken = _take(backlog, 16)

    assert Counter(taken) == {
        "mail.lane00": 4,
        "mail.lane01": 3,
        "mail": 3,
        "mail.jobs": 3,
        "mail.p.low": 3,
    }
    assert taken.index("mail.lane01") < 5


def test_while_jobs_come_to_lanes_the_slow_one_leaves_a_slot_free() -> None:
    backlog = Backlog([WorkQueue("mail", lanes=2)], slots=4)
    _fill(backlog, "mail.lane00", each=1)
    assert _take(backlog, 1) == ["mail.lane00"]
    backlog.leave("mail.lane00", now=0)
    _fill(backlog, "mail.p.low", each=20)

    assert _take(backlog, 3) == ["mail.p.low"] * 3
    assert backlog.take(now=299.9) is None
    _fill(backlog, "mail.lane01", each=1)
    assert _take(backlog, 1) == ["mail.lane01"]
    backlog.leave("mail.p.low", now=0)
    assert backlog.take(now=0) is None
    assert _queue_of(backlog.take(now=300)) == "mail.p.low"


def test_the_slow_lane_has_its_turns_while_jobs_of_other_lanes_wait() -> None:
    backlog = Backlog([WorkQueue("mail", lanes=2)], slots=4)
    _fill(backlog, "mail.lane00", "mail.p.low", each=40)
    taken = Counter(_take(backlog, 4))

    for _ in range(21):
        backlog.leave("mail.lane00", now=0)
        taken.update(_take(backlog, 1))

    assert taken == {"mail.lane00": 20, "mail.p.low": 5}


def test_the_slow_lane_has_every_slot_during_a_flood_alone() -> None:
    backlog = Backlog([WorkQueue("mail", lanes=2)], slots=4)
    _fill(backlog, "mail.p.low", each=20)

    assert len(_take(backlog, 4)) == 4
