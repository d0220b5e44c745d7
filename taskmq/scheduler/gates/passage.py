"""Decisions of `Gates` for one partition, carried out in the store."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchStore, Lane, Pick, ReadyJob
from taskmq.scheduler.gates.gates import Gates
from taskmq.scheduler.partitions import HeldLease

__all__ = ["GatePassage", "Passed"]

# So often lanes are looked at again, deeper, before what is free in them goes.
_LOOKS: Final = 4
_TOGETHER: Final = 500


class Passed(NamedTuple):
    """Picks without the jobs that have to wait.

    Attributes:
        has_put: some have left their lanes to wait.
        has_more: there may be more of them.
    """

    picks: list[Pick]
    has_put: bool = False
    has_more: bool = False


class GatePassage:
    """Puts jobs of one partition behind gates, and lets them go again. Every method raises `StoreUnavailable`.

    Attributes:
        gates: what decides.
    """

    def __init__(self, gates: Gates, store: DispatchStore, lease: HeldLease) -> None:
        self.gates = gates
        self._store = store
        self._lease = lease

    async def passed(self, picks: list[Pick], *, now: float) -> Passed:
        """Have the jobs leave their lanes that have to wait, and look at those behind them, which may go instead."""
        counts = {pick.lane: pick.count for pick in picks if self.gates.concern(pick.lane.queue, now=now)}
        if not counts:
            return Passed(picks)
        found: dict[Lane, list[ReadyJob]] = {}
        free: Counter[Lane] = Counter()
        depths = dict(counts)
        put = 0
        while put < _LOOKS:
            ready = await self._look(depths)
            found |= ready
            free, behind = self.gates.sort([job for lane in counts for job in found[lane]], counts, now=now)
            if not behind:
                break
            await self._store.put_behind(self._lease.partition, self._lease.epoch, behind)
            put += 1
            found = {lane: [job for job in jobs if job.id not in behind] for lane, jobs in found.items()}
            closed = [lane for lane, jobs in ready.items() if any(job.id in behind for job in jobs)]
            depths = {lane: max(counts[lane], _TOGETHER // len(closed)) for lane in closed}
        rest = [Pick(pick.lane, free[pick.lane] if pick.lane in counts else pick.count) for pick in picks]
        return Passed([pick for pick in rest if pick.count], put > 0, put == _LOOKS)

    async def open_due(self, has_room: Callable[[str], bool], *, now: float) -> set[Lane]:
        """Let jobs go for which their limits and queues have room; return the lanes that they have gone to."""
        due = self.gates.due(has_room, now=now)
        if not due:
            return set()
        opened = await self._store.open_gates(self._lease.partition, self._lease.epoch, due)
        self.gates.opened(due, Counter(gate for gate, _ in opened))
        return {lane for _, lane in opened}

    async def open_all(self, *, unless: Callable[[], bool]) -> bool:
        """Let all jobs go, some at a time, until `unless` is true; whether all have gone."""
        while not unless():
            if not await self._store.open_gates(self._lease.partition, self._lease.epoch):
                return True
        return False

    async def _look(self, depths: dict[Lane, int]) -> dict[Lane, list[ReadyJob]]:
        ready: dict[Lane, list[ReadyJob]] = {lane: [] for lane in depths}
        for job in await self._store.look([Pick(lane, depth) for lane, depth in depths.items()]):
            ready[job.lane].append(job)
        return ready
