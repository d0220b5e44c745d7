"""The lines of limits on a simulated clock: number, order and time of starts."""

import heapq
import random
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from taskmq.contracts.stores import Demand, PlaceDemand, RateDemand
from taskmq_local.rules.limits import acquire, mean
from tests.unit.local.rules.line_record import LineRecord

PATIENCE = 0.25
LEAD = 0.15


@dataclass
class Play:
    """Jobs that arrive, get a time to return, and return more or less on time.

    Attributes:
        late: maximum seconds by which a job returns early or late.
        stall: a period in which nothing happens.
        lost: the share of waiting jobs that never return.
    """

    demand: Demand
    runs: float = 0.05
    late: tuple[float, float] = (0.0, 0.1)
    lost: float = 0.0
    stall: tuple[float, float] = (0.0, 0.0)
    seed: int = 1
    starts: list[float] = field(default_factory=list[float])
    started: dict[str, float] = field(default_factory=dict[str, float])
    looks: int = 0
    most: int = 0

    def play(self, comes: list[tuple[float, str]], *, until: float = 1e9) -> None:
        dice = random.Random(self.seed)
        record = LineRecord()
        events: list[tuple[float, int, str, str]] = [
            (at, number, "comes", job) for number, (at, job) in enumerate(comes)
        ]
        heapq.heapify(events)
        number = len(events)
        while events:
            now, _, what, job = heapq.heappop(events)
            if now > until:
                return
            number += 1
            if self.stall[0] <= now < self.stall[1]:
                heapq.heappush(events, (self.stall[1], number, what, job))
                continue
            record.drop_lapsed(now)
            if what == "ends":
                record.held.pop(job)
                record.average = mean(record.average, self.runs)
                continue
            self.looks += 1
            entry = acquire(job, [(self.demand, record)], hold=job, seconds=1e6, patience=PATIENCE, now=now)
            if entry.granted:
                self.starts.append(now + entry.wait)
                self.started[job] = now + entry.wait
                self.most = max(self.most, len(record.held))
                if isinstance(self.demand, PlaceDemand):
                    heapq.heappush(events, (now + dice.uniform(0.5, 1.5) * self.runs, number, "ends", job))
            elif dice.random() >= self.lost:
                again = now + max(entry.wait - LEAD, 0.1) + dice.uniform(*self.late)
                heapq.heappush(events, (again, number, "comes", job))


def jobs(count: int, *, at: float = 0.0, name: str = "job") -> list[tuple[float, str]]:
    return [(at, f"{name} {number}") for number in range(count)]


def most_in(starts: list[float], window: float) -> int:
    """Return the most starts in any window of that length."""
    ordered, first, most = sorted(starts), 0, 0
    for last, start in enumerate(ordered):
        while start - ordered[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most


@given(
    per_second=some.sampled_from([1, 10, 100, 1000]),
    burst=some.sampled_from([1, 2, 20]),
    late=some.sampled_from([0.0, 0.05, 0.3, 5.0, 60.0]),
    lost=some.sampled_from([0.0, 0.1, 0.5]),
    count=some.integers(1, 300),
    spread=some.sampled_from([0.0, 1.0, 30.0]),
    seed=some.integers(0, 1000),
)
def test_starts_never_exceed_the_rate_and_its_burst(
    per_second: int, burst: int, late: float, lost: float, count: int, spread: float, seed: int
) -> None:
    dice = random.Random(seed)
    play = Play(RateDemand(key="r", interval=1 / per_second, burst=burst), late=(0.0, late), lost=lost, seed=seed)

    play.play([(dice.uniform(0, spread), f"{number}") for number in range(count)])

    for window in (0.01, 0.1, 1.0, 10.0):
        allowed = min((window + 0.25) * 1.25, window + 1.25) * per_second
        assert most_in(play.starts, window) <= burst + allowed + 2
    if not lost:
        assert len(play.started) == count


@given(
    per_second=some.sampled_from([1, 10, 100, 1000]),
    late=some.sampled_from([0.0, 0.05, 0.3, 5.0, 60.0]),
    lost=some.sampled_from([0.0, 0.1, 0.5]),
    count=some.integers(1, 300),
    spread=some.sampled_from([0.0, 1.0, 30.0]),
    seed=some.integers(0, 1000),
)
def test_starts_under_a_strict_rate_keep_their_distance(
    per_second: int, late: float, lost: float, count: int, spread: float, seed: int
) -> None:
    dice = random.Random(seed)
    play = Play(RateDemand(key="r", interval=1 / per_second, strict=True), late=(0.0, late), lost=lost, seed=seed)

    play.play([(dice.uniform(0, spread), f"{number}") for number in range(count)])

    assert all(later - earlier >= 1 / per_second - 1e-9 for earlier, later in pairwise(sorted(play.starts)))
    if not lost:
        assert len(play.started) == count


def test_a_strict_rate_is_used_fully_by_punctual_jobs() -> None:
    play = Play(RateDemand(key="r", interval=0.1, strict=True), late=(0.0, 0.05))

    play.play(jobs(300))

    assert max(play.starts) <= 30 * 1.2


def test_a_rate_is_used_fully_while_jobs_wait() -> None:
    play = Play(RateDemand(key="r", interval=0.01))

    play.play(jobs(3000))

    between = [start for start in play.starts if 2 <= start < 28]
    assert abs(len(between) - 2600) <= 26
    assert play.looks < 3 * 3000


def test_a_short_gap_is_made_up_for() -> None:
    play = Play(RateDemand(key="r", interval=0.01), stall=(10.0, 11.0))

    play.play(jobs(4000))

    assert abs(sum(5 <= start < 25 for start in play.starts) - 2000) <= 20
    assert most_in([start for start in play.starts if start > 2], 1.0) <= 158


def test_a_rate_is_used_fully_by_very_late_jobs() -> None:
    play = Play(RateDemand(key="r", interval=0.01), late=(10.0, 20.0))

    play.play(jobs(10_000))

    between = [start for start in play.starts if 20 <= start < 60]
    assert len(between) > 0.95 * 4000


def test_a_line_advances_in_order() -> None:
    play = Play(RateDemand(key="r", interval=0.1), late=(0.0, 0.0))

    play.play([(number * 0.001, f"{number}") for number in range(200)])

    places = {job: place for place, job in enumerate(sorted(play.started, key=play.started.__getitem__))}
    assert max(abs(places[str(number)] - number) for number in range(200)) <= 4


def test_announced_jobs_that_never_arrive_cost_seconds_and_not_starts() -> None:
    play = Play(RateDemand(key="r", interval=0.01), lost=0.5)

    play.play([*jobs(2000), *jobs(2000, at=25.0, name="later")])

    later = [start for job, start in play.started.items() if job.startswith("later")]
    assert len(later) > 900
    assert min(later) < 27
    assert max(later) < 27 + 2000 * 0.01


def test_jobs_without_room_in_the_line_are_retried_in_time() -> None:
    play = Play(RateDemand(key="r", interval=0.001))

    play.play(jobs(15_000))

    assert len(play.started) == 15_000
    assert max(play.starts) < 25
    assert play.looks < 6 * 15_000


@given(
    places=some.integers(1, 5),
    runs=some.sampled_from([0.01, 0.1, 1.0, 20.0]),
    late=some.sampled_from([0.05, 0.3, 5.0]),
    lost=some.sampled_from([0.0, 0.3]),
    count=some.integers(1, 120),
    seed=some.integers(0, 1000),
)
def test_permits_never_exceed_the_limit(
    places: int, runs: float, late: float, lost: float, count: int, seed: int
) -> None:
    play = Play(PlaceDemand(key="p", places=places), runs=runs, late=(0.0, late), lost=lost, seed=seed)

    play.play(jobs(count))

    assert play.most <= places
    if not lost:
        assert len(play.started) == count


def test_permits_are_used_fully_while_jobs_wait() -> None:
    for runs, share in ((0.2, 0.85), (1.0, 0.9), (5.0, 0.9)):
        play = Play(PlaceDemand(key="p", places=3), runs=runs, late=(0.0, 0.125))

        play.play(jobs(300))

        whole = max(play.starts)
        assert 300 * runs / 3 / whole > share, (runs, 300 * runs / 3 / whole)
        assert play.looks < 10 * 300, (runs, play.looks)


def test_newcomers_cannot_overtake_a_waiting_job_forever() -> None:
    play = Play(PlaceDemand(key="p", places=1), runs=0.2)
    newcomers = [(number * 0.05, f"new {number}") for number in range(4000)]

    play.play([(5.0, "old"), *newcomers], until=220)

    assert play.started["old"] < 5 + 200 * 0.2
    waits = [play.started[job] - at for at, job in newcomers if job in play.started and at < 5]
    assert len(waits) == 100


def test_punctual_jobs_start_at_even_intervals() -> None:
    play = Play(RateDemand(key="r", interval=0.02), late=(0.0, 0.1))

    play.play(jobs(500))

    gaps = [later - earlier for earlier, later in pairwise(sorted(play.starts))]
    assert sum(abs(gap - 0.02) < 0.001 for gap in gaps) > 0.95 * len(gaps)
