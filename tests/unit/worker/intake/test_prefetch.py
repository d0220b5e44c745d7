import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.topology import WorkQueue
from taskmq.worker.prefetch import prefetch_for, prefetch_of, worth_changing

_slots = st.integers(1, 2000)
_runs = st.floats(0, 10_000, allow_nan=False)


@pytest.mark.parametrize(
    ("seconds", "wanted"), [(None, 64), (0.0, 250), (0.01, 250), (0.1, 64), (1.0, 48), (10.0, 32), (3600.0, 32)]
)
def test_shorter_runs_mean_a_larger_prefetch(seconds: float | None, wanted: int) -> None:
    assert prefetch_for(32, seconds=seconds) == wanted


@given(_slots, st.none() | _runs)
def test_prefetch_is_at_least_one_per_slot_and_has_a_maximum(slots: int, seconds: float | None) -> None:
    assert slots <= prefetch_for(slots, seconds=seconds) <= max(250, slots)


@given(_slots, _runs, _runs)
def test_longer_runs_never_mean_a_larger_prefetch(slots: int, one: float, other: float) -> None:
    shorter, longer = sorted((one, other))
    assert prefetch_for(slots, seconds=longer) <= prefetch_for(slots, seconds=shorter)


def test_a_small_difference_does_not_replace_the_consumer() -> None:
    assert not worth_changing(64, 50)
    assert not worth_changing(50, 64)
    assert worth_changing(64, 32)
    assert worth_changing(64, 250)


@pytest.mark.parametrize(
    ("queue", "physical", "wanted"),
    [
        (WorkQueue("a"), "a", 5),
        (WorkQueue("a"), "a.p.low", 5),
        (WorkQueue("a", ordered=2), "a.s01", 1),
        (WorkQueue("a", ordered=2), "a.jobs", 5),
        (WorkQueue("a", lanes=2), "a.lane01", 3),
        (WorkQueue("a", lanes=2), "a.p.low", 5),
    ],
)
def test_two_lanes_share_the_prefetch_of_a_queue_and_a_shard_has_one(
    queue: WorkQueue, physical: str, wanted: int
) -> None:
    assert prefetch_of(queue, physical, 5) == wanted
