"""Number of processes: fast up, slow down, stable under a constant load."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from taskmq.supervisor.autoscale import Autoscale, Load

SLOTS = 10


def _load(at: float, processes: int, busy: float, *, cpu: float = 0.0, rate: float = 100.0, backlog: int = 0) -> Load:
    return Load(at, processes, processes * SLOTS, math.floor(busy), cpu, rate, backlog)


class _Site:
    """Processes under a load of jobs with a duration, one poll a second; new ones take a while to start."""

    def __init__(self, scale: Autoscale, *, starting: int = 3) -> None:
        self._scale = scale
        self._starting = starting
        self._soon: list[tuple[int, int]] = []
        self.processes = scale.wanted
        self.backlog = 0.0
        self.now = 0
        self.history: list[int] = []

    def run(self, seconds: int, *, jobs: float, each: float, cores: float = 0.0) -> None:
        """Simulate `jobs` per second, each taking `each` seconds of a slot and `cores` of a processor."""
        for _ in range(seconds):
            self.now += 1
            self.processes += sum(count for at, count in self._soon if at == self.now)
            limit = min(
                self.processes * SLOTS / each,
                self.processes / cores if cores else math.inf,
            )
            done = min(self.backlog + jobs, limit)
            self.backlog += jobs - done
            load = _load(
                self.now,
                self.processes,
                # With too few processors, running jobs take longer and fill the slots.
                self.processes * SLOTS if self.backlog > 0 else done * each,
                cpu=done * cores,
                rate=done,
                backlog=int(self.backlog),
            )
            before = self._scale.wanted
            after = self._scale.look(load)
            if after > before:
                self._soon.append((self.now + self._starting, after - before))
            else:
                self.processes -= before - after
            self.history.append(after)


bounds = st.tuples(st.integers(1, 8), st.integers(0, 24)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(bounds, st.floats(0, 400), st.floats(0.01, 5), st.floats(0, 0.02))
def test_scaling_stays_in_bounds_and_does_not_oscillate_under_a_constant_load(
    limits: tuple[int, int], jobs: float, each: float, cores: float
) -> None:
    least, most = limits
    site = _Site(Autoscale(least=least, most=most))

    site.run(4000, jobs=jobs, each=each, cores=cores)

    assert all(least <= wanted <= most for wanted in site.history)
    # At first it may take more processes to clear the backlog; after that the number is stable.
    assert len(set(site.history[-600:])) == 1, site.history[-600:]


@given(bounds, st.floats(1.05, 10))
def test_scaling_reaches_the_maximum_within_seconds_under_an_overload(limits: tuple[int, int], over: float) -> None:
    least, most = limits
    site = _Site(Autoscale(least=least, most=most))

    site.run(60, jobs=over * most * SLOTS, each=1.0)

    assert site.history[-1] == most


@given(bounds)
def test_scaling_goes_down_to_the_minimum_one_by_one_without_work(limits: tuple[int, int]) -> None:
    least, most = limits
    site = _Site(Autoscale(least=least, most=most, calm=5))
    site.run(120, jobs=2 * most * SLOTS, each=1.0)
    site.backlog = 0
    before = len(site.history)

    site.run(20 * (most - least + 1), jobs=0, each=1.0)

    after = site.history[before:]
    assert after[-1] == least
    assert all(first - second in (0, 1) for first, second in pairwise(after))


def test_scaling_waits_for_new_processes_to_consume_before_adding_more() -> None:
    scale = Autoscale(least=1, most=8)

    assert scale.look(_load(0, 1, 10, backlog=10_000)) == 2
    assert scale.look(_load(1, 1, 10, backlog=20_000)) == 2
    assert scale.look(_load(2, 2, 20, backlog=30_000)) == 4


def test_a_process_that_never_starts_does_not_prevent_others() -> None:
    scale = Autoscale(least=1, most=16)
    scale.look(_load(0, 1, 10, backlog=10_000))
    scale.look(_load(10, 2, 20, backlog=10_000))
    assert scale.wanted == 4

    decided = [scale.look(_load(at, 3, 30, backlog=100_000)) for at in (20, 69, 70)]

    assert decided == [4, 4, 6]


def test_a_backlog_beside_idle_processes_changes_nothing() -> None:
    scale = Autoscale(least=1, most=8)

    assert [scale.look(_load(at, 1, 1, rate=1, backlog=100_000)) for at in range(100)] == [1] * 100


def test_processor_time_counts_if_slots_are_free() -> None:
    assert Autoscale(least=1, most=8).look(_load(0, 1, 1, cpu=0.95)) == 2


def test_a_reduction_that_was_too_much_is_retried_later_and_later() -> None:
    scale = Autoscale(least=1, most=2, calm=10)
    downs: list[int] = []
    for at in range(1000):
        before = scale.wanted
        # Slots look idle with two processes, and overloaded with one.
        after = scale.look(_load(at, before, 3 if before == 2 else 10))
        if after < before:
            downs.append(at)

    gaps = [second - first for first, second in pairwise(downs)]
    assert len(downs) < 10
    assert all(second > 1.5 * first for first, second in pairwise(gaps))


def test_a_paused_process_is_never_left_as_the_only_one() -> None:
    scale = Autoscale(least=1, most=2, calm=10)
    scale.look(_load(0, 1, 10))

    after = [scale.look(Load(at, 1, SLOTS, 1, 0.0, 1.0, 0, paused=1)) for at in range(1, 100)]

    assert set(after) == {2}


def test_another_process_starts_when_those_beside_a_paused_one_are_busy() -> None:
    scale = Autoscale(least=2, most=8)

    assert scale.look(Load(0, 1, SLOTS, SLOTS, 0.0, 1.0, 0, paused=1)) == 3


def test_a_dismissed_process_is_not_replaced() -> None:
    scale = Autoscale(least=2, most=4)

    scale.dismiss()

    assert (scale.least, scale.most, scale.wanted) == (2, 3, 2)
    assert [scale.look(_load(at, 2, 20, backlog=10_000)) for at in range(3)] == [3, 3, 3]
    for _ in range(4):
        scale.dismiss()
    assert (scale.least, scale.most, scale.wanted) == (0, 0, 0)


def test_scaling_decides_nothing_without_reports() -> None:
    scale = Autoscale(least=2, most=4)

    assert scale.look(Load(0, 0, 0, 0, 0.0, 0.0, None)) == 2
