"""Shares, windows and the division of partitions. Pure."""

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.jobs import Lane, Pick
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from taskmq.scheduler.fairness import FLOOR, RoundTrips, Shares, Window, divide

_PRIORITY = {"high": 9, "medium": 4, "low": 0}


def _lane(kind: str = "medium", tenant: str = "", queue: str = "work") -> Lane:
    return Lane(queue, _PRIORITY[kind], tenant)


def _dealt(shares: Shares, count: int, *, rounds: int = 1) -> Counter[Lane]:
    found: Counter[Lane] = Counter()
    for _ in range(rounds):
        for pick in shares.picks(lambda _: count, limit=500):
            found[pick.lane] += pick.count
    return found


# Shares


@pytest.mark.parametrize(("count", "rounds"), [(100, 1), (1, 100), (7, 100)])
def test_three_classes_get_their_minimum_shares_at_any_supply(count: int, rounds: int) -> None:
    shares = Shares()
    shares.refresh([_lane("high"), _lane("medium"), _lane("low")])

    found = _dealt(shares, count, rounds=rounds)

    total = count * rounds
    assert found == {
        _lane("high"): total * 60 // 100,
        _lane("medium"): total * 30 // 100,
        _lane("low"): total * 10 // 100,
    }


def test_a_class_without_jobs_leaves_its_turns_to_the_others_and_saves_none() -> None:
    shares = Shares()
    shares.refresh([_lane("medium"), _lane("low")])
    assert _dealt(shares, 100) == {_lane("medium"): 75, _lane("low"): 25}

    shares.refresh([_lane("high"), _lane("medium"), _lane("low")])

    assert _dealt(shares, 10)[_lane("high")] == 6


def test_tenants_of_a_class_take_turns() -> None:
    shares = Shares()
    shares.refresh([_lane(tenant=name) for name in "abc"])

    assert _dealt(shares, 5) == {_lane(tenant="a"): 2, _lane(tenant="b"): 2, _lane(tenant="c"): 1}
    # The next ones continue after the previous ones.
    assert _dealt(shares, 1) == {_lane(tenant="c"): 1}


def test_within_a_tenant_and_class_the_higher_priority_goes_first() -> None:
    shares = Shares()
    shares.refresh([Lane("work", 4, "a"), Lane("work", 6, "a"), Lane("work", 4, "b")])

    assert _dealt(shares, 4) == {Lane("work", 6, "a"): 2, Lane("work", 4, "b"): 2}

    shares.drop(Lane("work", 6, "a"))
    assert _dealt(shares, 2) == {Lane("work", 4, "a"): 1, Lane("work", 4, "b"): 1}


def test_reloading_equal_policies_and_pools_changes_no_waiting_job() -> None:
    policies, pools = {"work": QueuePolicy(policy="fifo")}, {"lab": TenantPool(name="lab")}
    shares = Shares()
    shares.configure(policies, pools)
    before = shares.pools

    shares.configure(dict(policies), dict(pools))

    assert shares.pools is before
    assert shares.rules_of("work") == (policies["work"], pools)
    assert shares.rules_of("other")[0].policy == "fair"


def test_a_refresh_forgets_tenants_without_jobs() -> None:
    shares = Shares()
    shares.refresh([_lane(tenant="a"), _lane(tenant="b"), _lane(queue="other")])

    shares.refresh([_lane(tenant="b")])

    assert len(shares) == 1
    assert _dealt(shares, 4) == {_lane(tenant="b"): 4}


def test_an_exhausted_and_forgotten_lane_takes_nothing_from_the_others() -> None:
    shares = Shares()
    shares.refresh([_lane(tenant="a")])

    shares.drop(_lane("high", tenant="gone"))
    shares.drop(Lane("work", 5, "a"))
    shares.drop(_lane(queue="gone"))

    assert _dealt(shares, 4) == {_lane(tenant="a"): 4}


def test_an_exhausted_lane_waits_for_the_next_refresh() -> None:
    shares = Shares()
    shares.refresh([_lane("high"), _lane("low")])

    shares.drop(_lane("high"))
    assert _dealt(shares, 5) == {_lane("low"): 5}
    shares.drop(_lane("low"))
    shares.drop(_lane("low"))
    assert len(shares) == 0
    assert shares.picks(lambda _: 9, limit=9) == []

    shares.refresh([_lane("high")])
    assert shares.picks(lambda _: 9, limit=4) == [Pick(_lane("high"), 4)]


def test_a_queue_fills_its_room_and_all_queues_take_turns_at_the_limit() -> None:
    shares = Shares()
    lanes = {name: _lane(queue=name) for name in ("a", "b", "c")}
    shares.refresh(lanes.values())
    room = {"a": 5, "b": 0, "c": 5}

    assert shares.picks(room.__getitem__, limit=6) == [Pick(lanes["a"], 5), Pick(lanes["c"], 1)]
    assert shares.picks(room.__getitem__, limit=6) == [Pick(lanes["c"], 5), Pick(lanes["a"], 1)]


@given(
    lanes=st.lists(
        st.builds(Lane, st.sampled_from("qr"), st.integers(0, 9), st.sampled_from("abc")), min_size=1, unique=True
    ),
    steps=st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=10),
)
def test_picks_belong_to_existing_lanes_and_fill_the_room(lanes: list[Lane], steps: list[tuple[int, bool]]) -> None:
    shares = Shares()
    shares.refresh(lanes)
    there = set(lanes)

    for room, loses in steps:
        queues = {lane.queue for lane in there}
        picks = shares.picks(lambda _, room=room: room, limit=60)  # type: ignore[misc]

        assert {pick.lane for pick in picks} <= there
        assert sum(pick.count for pick in picks) == min(room * len(queues), 60)
        if loses and picks:
            shares.drop(picks[0].lane)
            there.discard(picks[0].lane)
        if not there:
            break


# Windows


def test_a_window_is_a_quarter_above_the_slots_or_fixed_if_none_is_known() -> None:
    window = Window()

    assert window.size(None, now=0.0) == FLOOR
    assert window.size(100, now=1.0) == 125
    assert window.size(10, now=1.0) == 14
    assert window.size(3, now=1.0) == 6
    assert window.size(0, now=2.0) == 0


def test_a_window_is_twice_the_slots_if_their_runs_are_short() -> None:
    window = Window()
    now = 0.0
    for _ in range(100):
        now += 0.05
        window.record_ended(25, now=now)

    # Each of the 100 slots ends five in a second.
    assert window.size(100, now=now) == 200


def test_a_window_grows_with_the_rate_and_shrinks_when_nothing_ends() -> None:
    window = Window()
    now = 0.0
    for _ in range(100):
        now += 0.05
        window.record_ended(500, now=now)

    # 10,000 a second for 100 ms.
    assert round(window.size(8, now=now), -1) == 1_000
    assert round(window.rate, -2) == 10_000

    window.size(8, now=now + 10)
    assert window.size(8, now=now + 20) == 12


def test_a_window_of_long_runs_is_refilled_with_each_ending_job() -> None:
    window = Window()

    assert window.room(100, 0, now=0.0) == 125
    assert window.room(100, 124, now=0.0) == 1
    assert window.room(100, 125, now=0.0) == 0
    assert window.room(100, 200, now=0.0) == 0
    assert window.room(None, FLOOR - 1, now=0.0) == 1


def test_a_window_of_short_runs_is_refilled_after_half_of_its_growth_has_ended() -> None:
    window = Window()
    now = 0.0
    for _ in range(100):
        now += 0.05
        window.record_ended(25, now=now)

    # 75 more than for long runs.
    assert window.size(100, now=now) == 200
    assert window.room(100, 163, now=now) == 0
    assert window.room(100, 162, now=now) == 38
    assert window.room(100, 0, now=now) == 200


@pytest.mark.parametrize(("second", "size"), [(500, 1_000), (0, 69)])
def test_a_window_follows_a_rate_that_lasts_but_not_a_burst(second: int, size: int) -> None:
    window = Window()
    for now, ended in ((0.0, 0), (0.01, 500), (0.05, second)):
        window.record_ended(ended, now=now)

    # 10,000 a second, or a moving average of that.
    assert window.size(8, now=0.1) == size


def test_a_window_covers_slow_round_trips_but_at_most_a_second() -> None:
    trips = RoundTrips()
    window = Window(trips)
    now = 0.0
    for _ in range(100):
        now += 0.05
        window.record_ended(500, now=now)

    trips.record("publish", 0.05)
    trips.record("record", 0.02)
    # 10,000 a second for 100 ms and three times 70 ms.
    assert round(window.size(8, now=now), -1) == 3_100
    # The newest round trip has a fifth of the weight.
    trips.record("publish", 0.1)
    assert round(window.size(8, now=now), -1) == 3_400

    trips.record("dispatch", 9.0)
    assert round(window.size(8, now=now), -1) == 10_000


def _drain(trips: RoundTrips, *, way: float, capacity: int) -> tuple[int, int]:
    """Serve an endless backlog of short runs for ten seconds: return the ends of the last one, and most in flight.

    Args:
        way: seconds from the dispatch of a job to its recorded end, if no other job delays it.
        capacity: number of jobs that workers can end in a second.
    """
    window, ends = Window(trips), deque[float]()
    in_flight = ended = most = 0
    last = 0.0
    for turn in range(2_000):
        now = turn * 0.005
        leaving = 0
        while ends and ends[0] <= now:
            ends.popleft()
            leaving += 1
        in_flight -= leaving
        if leaving:
            window.record_ended(leaving, now=now)
        for _ in range(min(window.room(100, in_flight, now=now), 500)):
            last = max(now + way, last + 1 / capacity)
            ends.append(last)
            in_flight += 1
        most = max(most, in_flight)
        ended += leaving if turn >= 1_800 else 0
    return ended, most


@pytest.mark.parametrize("way", [0.01, 0.05, 0.1, 0.2, 0.3])
def test_a_window_grows_until_the_workers_are_busy_however_long_the_way(way: float) -> None:
    trips = RoundTrips()
    # A way has two publishes, a record, and half of the record before.
    trips.record("publish", way * 0.35)
    trips.record("record", way * 0.2)
    trips.record("dispatch", way * 0.1)

    ended, most = _drain(trips, way=way, capacity=5_000)

    assert ended == pytest.approx(5_000, rel=0.05)
    # Twice as many as are under way, and what ends in 100 ms.
    assert most <= 5_000 * (2 * way + 0.12)


# Partitions


@pytest.mark.simulation
@given(st.integers(1, 64), st.integers(1, 70))
def test_schedulers_that_come_and_go_share_all_partitions_evenly(partitions: int, count: int) -> None:
    holders: dict[int, str | None] = dict.fromkeys(range(partitions))
    wanting: str | None = None
    live = [f"s{number:02d}" for number in range(count)]

    def settle() -> None:
        nonlocal wanting
        for _ in range(4 * partitions + 4 * len(live)):
            before = (dict(holders), wanting)
            for me in live:
                division = divide(holders, me=me, wanting=wanting)
                for partition in division.take:
                    assert holders[partition] is None
                    holders[partition] = me
                for partition in division.give:
                    assert holders[partition] == me
                    holders[partition] = None
                if division.wants:
                    wanting = wanting or me
                elif wanting == me:
                    wanting = None
            if before == (holders, wanting):
                return
        raise AssertionError(f"they do not come to rest: {holders}")

    settle()
    _assert_even(holders, live)
    # Half of them die: their leases end, and so does the request of a dead one.
    live = live[: (len(live) + 1) // 2]
    holders = {partition: holder if holder in live else None for partition, holder in holders.items()}
    wanting = wanting if wanting in live else None
    settle()
    _assert_even(holders, live)
    # Others start.
    live = [*live, "x1", "x2", "x3"]
    settle()
    _assert_even(holders, live)


def _assert_even(holders: dict[int, str | None], live: list[str]) -> None:
    counts = Counter(holders.values())
    assert None not in counts
    if len(live) <= len(holders):
        assert max(counts[name] for name in live) - min(counts[name] for name in live) <= 1


def test_a_single_scheduler_takes_all_partitions_at_once() -> None:
    division = divide(dict.fromkeys(range(8)), me="a", wanting=None)

    assert (division.take, division.give, division.wants) == (list(range(8)), [], False)


def test_a_second_scheduler_announces_itself_and_the_first_gives_half() -> None:
    holders: dict[int, str | None] = dict.fromkeys(range(8), "a")

    assert divide(holders, me="b", wanting=None).wants
    assert divide(holders, me="a", wanting="b").give == [4, 5, 6, 7]


def test_the_fullest_scheduler_gives_one_partition_to_a_poorer_one() -> None:
    holders = dict(enumerate(["a", "a", "b", "b", "c"]))

    given = {me: divide(holders, me=me, wanting="c").give for me in ("a", "b", "c")}

    assert given == {"a": [1], "b": [], "c": []}
