"""Tests of depths of queues."""

from typing import Final

from taskmq.contracts.history import QueueDepth
from taskmq.model.history.rollups import MINUTE
from taskmq.testing.job_store_suite.history.kit import HistoryCase
from taskmq.testing.runner import case

_AT: Final = 28_000_000 * MINUTE


def _depth(minute: int = 0, queue: str = "q", *, stored: int = 0, ready: int = 0, in_hand: int = 0) -> QueueDepth:
    return QueueDepth(queue=queue, at=_AT + minute * MINUTE, stored=stored, ready=ready, in_hand=in_hand)


class DepthCases(HistoryCase):
    """Every guarantee of `DepthStore`."""

    @case
    async def test_the_first_depth_of_a_queue_and_minute_is_kept(self) -> None:
        depths, other = self.history().depths, self.history().depths
        await depths.add([_depth(0, "☂", stored=10_000_000_000, ready=2, in_hand=3), _depth(0, "b")])

        await other.add([_depth(0, "b", stored=5), _depth(1, "b", stored=5)])
        await depths.add([])

        found = await depths.depths(since=0, until=_AT * 2, step=MINUTE)
        assert found == [
            _depth(0, "b"),
            _depth(0, "☂", stored=10_000_000_000, ready=2, in_hand=3),
            _depth(1, "b", stored=5),
        ]

    @case
    async def test_depths_are_found_by_time_and_queue(self) -> None:
        depths = self.history().depths
        await depths.add([_depth(minute, queue) for minute in range(3) for queue in ("a", "b")])

        for since, until, queue, limit, count in (
            (_AT + MINUTE, _AT * 2, None, 50, 4),
            (0, _AT + MINUTE, None, 50, 2),
            (0, _AT * 2, "a", 50, 3),
            (0, _AT * 2, "nul\0", 50, 0),
            (0, _AT * 2, None, 5, 5),
        ):
            found = await depths.depths(since=since, until=until, step=MINUTE, queue=queue, limit=limit)
            assert len(found) == count, (since, until, queue)

    @case
    async def test_a_longer_step_has_the_most_of_its_minutes_in_each_place(self) -> None:
        depths = self.history().depths
        begin = -(-_AT // (5 * MINUTE)) * 5 - _AT // MINUTE
        found = [_depth(begin, stored=7), _depth(begin + 4, ready=4, in_hand=1), _depth(begin + 5, stored=1)]
        await depths.add(found)

        found = await depths.depths(since=0, until=_AT * 2, step=5 * MINUTE)

        assert found == [_depth(begin, stored=7, ready=4, in_hand=1), _depth(begin + 5, stored=1)]

    @case
    async def test_many_depths_are_stored_and_old_ones_deleted_in_parts(self) -> None:
        depths = self.history().depths
        await depths.add([_depth(minute, f"q{queue}") for minute in range(2) for queue in range(150)])

        deleted = [await depths.forget(before=_AT + MINUTE, limit=100) for _ in range(3)]

        assert deleted == [100, 50, 0]
        assert len(await depths.depths(since=0, until=_AT * 2, step=MINUTE)) == 150
