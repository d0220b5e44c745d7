"""Due rows, read ahead and fired: their time and their batches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from taskmq.scheduler.firing.due_loop import DueLoop, FiringPace, StoreClock

# Milliseconds since the epoch at the start of each test.
_START = 1_700_000_000_000
_FIRING = 0.002


@dataclass(frozen=True, slots=True)
class _Row:
    due: int


class _Partition:
    """A partition with rows that are due that many ms after the start.

    Attributes:
        fired: the instant of each firing, in the same unit, and the fired rows.
        looks: number of reads of the rows.
    """

    def __init__(self, pace: FiringPace, dues: Sequence[int]) -> None:
        self._began = asyncio.get_running_loop().time()
        self._rows = [_Row(_START + due) for due in dues]
        self.fired: list[tuple[float, list[int]]] = []
        self.looks = 0
        self.loop = DueLoop(
            "rows", clock=StoreClock(self._now_ms), pace=pace, due=self._due, fire=self._fire, batch=500
        )

    @property
    def late(self) -> list[float]:
        return [at - due for at, dues in self.fired for due in dues]

    def _passed_time(self) -> float:
        return (asyncio.get_running_loop().time() - self._began) * 1000

    async def _now_ms(self) -> int:
        return _START + int(self._passed_time())

    async def _due(self, until: int, limit: int) -> list[_Row]:
        self.looks += 1
        return [row for row in self._rows if row.due <= until][:limit]

    async def _fire(self, batch: Sequence[_Row]) -> None:
        self.fired.append((self._passed_time(), [row.due - _START for row in batch]))
        self._rows = [row for row in self._rows if row not in batch]
        await asyncio.sleep(_FIRING)


async def _run(*partitions: _Partition, seconds: float) -> None:
    running = [asyncio.ensure_future(partition.loop.run()) for partition in partitions]
    await asyncio.sleep(seconds)
    for partition in partitions:
        partition.loop.stop()
    await asyncio.gather(*running)


async def test_a_lone_schedule_of_any_partition_fires_at_its_instant() -> None:
    pace = FiringPace(0.005)
    one, other = _Partition(pace, [1_000, 2_500, 9_000]), _Partition(pace, [1_700, 9_006])

    await _run(one, other, seconds=10)

    assert len(one.late + other.late) == 5
    # The clock has a resolution of a millisecond, and waits are whole ones.
    assert all(0 <= each <= 2 for each in one.late + other.late), one.late + other.late


async def test_partitions_that_share_a_pace_fire_together_and_no_more_often() -> None:
    pace = FiringPace(0.005)
    partitions = [_Partition(pace, range(1_000 + first, 1_400, 3)) for first in range(3)]

    await _run(*partitions, seconds=2)

    late = [each for partition in partitions for each in partition.late]
    assert len(late) == 400
    assert all(0 <= each <= 8 for each in late), max(late)
    instants = sorted(at for partition in partitions for at, _ in partition.fired)
    apart = [after - before for before, after in pairwise(instants) if after - before > 1]
    assert min(apart) >= 4.99
    # Nearly always all of them.
    assert len(instants) >= 2.5 * (len(apart) + 1)


async def test_repeated_requests_poll_a_partition_once_in_ten_milliseconds() -> None:
    partition = _Partition(FiringPace(0.005), [])
    running = asyncio.ensure_future(_run(partition, seconds=0.2))

    for _ in range(200):
        partition.loop.expect(0)
        await asyncio.sleep(0.001)

    await running
    assert 15 <= partition.looks <= 21
