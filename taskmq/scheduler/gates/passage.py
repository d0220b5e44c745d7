"""Execution of the decisions of `Gates` in the store, for one partition."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, DispatchStore, Lane, Pick, RatedJob, ReadyJob, WorkDone
from taskmq.options.limits import STRICT_MARGIN
from taskmq.scheduler.gates.claims import ClaimWaits, fence_of
from taskmq.scheduler.gates.gates import Gates
from taskmq.scheduler.partitions import HeldLease

# Rounds in which lanes are read deeper before their free jobs are dispatched.
_ROUNDS: Final = 4
_TOGETHER: Final = 500
# Milliseconds by which workers' clocks may differ, or a start be held up after its worker has compared them.
_CLOCKS: Final = 25


class StartWindow(NamedTuple):
    """First and last instant of a start, ms since the epoch; None: it may start at any time."""

    not_before: int | None
    not_after: int | None


_ANY_TIME: Final = StartWindow(None, None)


class Passed(NamedTuple):
    """Picks without the jobs that have to wait.

    Attributes:
        has_put: whether some jobs were moved behind gates.
        has_more: whether more jobs may have to wait.
    """

    picks: list[Pick]
    has_put: bool = False
    has_more: bool = False


class ClaimedJobs(NamedTuple):
    """Dispatched jobs by what became of their claims.

    Attributes:
        held: hold their claims, or have none.
        waiting: wait behind gates.
        done: the work of their keys was done before.
        left: their cancellation was requested, or they are not dispatched any more.
    """

    held: Sequence[DispatchedJob]
    waiting: list[DispatchedJob]
    done: list[tuple[DispatchedJob, WorkDone]]
    left: list[DispatchedJob]


class GatePassage:
    """The moves of one partition's jobs behind gates and back. Every method raises `StoreUnavailable`.

    Attributes:
        gates: gates that decide.
    """

    def __init__(self, gates: Gates, claims: ClaimWaits, store: DispatchStore, lease: HeldLease) -> None:
        self.gates = gates
        self._claims = claims
        self._store = store
        self._lease = lease

    async def divide(self, picks: list[Pick], *, now: float) -> Passed:
        """Move jobs that have to wait behind gates, and examine the next ones, which may be dispatched instead."""
        counts = {pick.lane: pick.count for pick in picks if self._may_wait(pick.lane.queue, now=now)}
        if not counts:
            return Passed(picks)
        found: dict[Lane, list[ReadyJob]] = {}
        free: Counter[Lane] = Counter()
        depths = dict(counts)
        put = 0
        while put < _ROUNDS:
            ready = await self._look(depths)
            found |= ready
            jobs = [job for lane in counts for job in found[lane]]
            free, behind = self.gates.sort(jobs, counts, claims=self._claims.turn(now=now), now=now)
            if not behind:
                break
            await self._store.put_behind(self._lease.partition, self._lease.epoch, behind)
            put += 1
            found = {lane: [job for job in jobs if job.id not in behind] for lane, jobs in found.items()}
            closed = [lane for lane, jobs in ready.items() if any(job.id in behind for job in jobs)]
            depths = {lane: max(counts[lane], _TOGETHER // len(closed)) for lane in closed}
        rest = [Pick(pick.lane, free[pick.lane] if pick.lane in counts else pick.count) for pick in picks]
        return Passed([pick for pick in rest if pick.count], put > 0, put == _ROUNDS)

    async def open_due(self, has_room: Callable[[str], bool], *, now: float) -> set[Lane]:
        """Release jobs whose limits and queues have room. Returns their lanes."""
        due = self.gates.due(has_room, now=now)
        if rates := self.gates.rates_of_gates(due):
            # Another partition may have used the rate.
            waits = await self._store.rate_waits(rates, lead=self.gates.lead)
            for demand in rates:
                if not self.gates.record_wait(demand, waits[demand.key], now=now):
                    self.gates.keep_closed(demand, now=now)
                    del due[demand.key]
        if not due:
            return set()
        opened = await self._store.open_gates(self._lease.partition, self._lease.epoch, due)
        self.gates.record_released(due, Counter(gate for gate, _ in opened))
        return {lane for _, lane in opened}

    async def take_claims(self, jobs: Sequence[DispatchedJob], *, now: float) -> ClaimedJobs | None:
        """Take the claims of dispatched jobs in the store. Returns None if another scheduler holds the partition."""
        found = ClaimedJobs(jobs, [], [], [])
        if not (claims := {job.id: claimed for job in jobs if (claimed := self._claims.of(job.id))}):
            return found
        claiming = [replace(job, claims=claims[job.id]) for job in jobs if job.id in claims]
        taken = await self._store.take_claims(self._lease.partition, self._lease.epoch, claiming)
        if taken is None:
            return None
        self._claims.record_done(
            [claim.name for job in claiming if job.id in taken.done for claim in job.claims if claim.ttl]
        )
        for job in claiming:
            if (name := taken.waiting.get(job.id)) is not None:
                self._claims.wait(job.id, name, queue=job.queue, now=now)
                found.waiting.append(job)
            elif (done := taken.done.get(job.id)) is not None:
                found.done.append((job, done))
            elif job.id not in taken.fences:
                # An answer may be lost, so it may wait.
                self._claims.wait(job.id, queue=job.queue, now=now)
                found.left.append(job)
        held = {job.id: replace(job, fence=fence_of(job, taken)) for job in claiming if job.id in taken.fences}
        return found._replace(held=[held.get(job.id, job) for job in jobs if job.id not in claims or job.id in held])

    async def take_starts(
        self, jobs: Sequence[DispatchedJob], *, sure: Collection[str] = (), now: float
    ) -> list[DispatchedJob] | None:
        """Request the starts of dispatched jobs. Returns the jobs that may start, with the instants of strict rates.

        Other jobs wait behind gates. Returns None if another scheduler holds the partition.

        Args:
            sure: jobs that a worker may have already.
        """
        rates = {job.id: found for job in jobs if (found := self.gates.rates_of(job))} if self.gates.has_any else {}
        if not rates:
            return list(jobs)
        rated = [
            RatedJob(job.id, job.token, rates[job.id], is_sure=job.id in sure) for job in jobs if job.id in rates
        ]
        partition, epoch = self._lease.partition, self._lease.epoch
        taken = await self._store.take_starts(partition, epoch, rated, lead=self.gates.lead)
        if taken is None:
            return None
        for demand in {demand.key: demand for job in rated for demand in job.rates}.values():
            self.gates.record_wait(demand, taken.waits[demand.key], now=now)
        self.gates.note_in_time(now=now)
        for job in jobs:
            if (key := taken.waiting.get(job.id)) is not None:
                (demand,) = (each for each in rates[job.id] if each.key == key)
                self.gates.wait_behind(demand, job.queue, now=now)
        return [replace(job, start=taken.instants.get(job.id)) for job in jobs if job.id not in taken.waiting]

    async def take_over(self, *, unless: Callable[[], bool]) -> bool:
        """Adopt the jobs behind gates of an earlier holder, until `unless` is true. Returns whether all are adopted.

        Jobs behind lines and keys stay there. The others are released, and the usage of their limits becomes known as
        they are examined.
        """
        partition, epoch, after = self._lease.partition, self._lease.epoch, ""
        while not unless():
            if not (gates := await self._store.closed_gates(partition, after=after)):
                return True
            others = [gate for gate in gates if not self._claims.adopt(gate)]
            each = dict.fromkeys(others, max(_TOGETHER // max(len(others), 1), 1))
            while not unless() and each and await self._store.open_gates(partition, epoch, each):
                pass
            after = gates[-1]
        return False

    def _may_wait(self, queue: str, *, now: float) -> bool:
        return self.gates.may_have_limits(queue, now=now) or self._claims.may_wait(queue, now=now)

    async def _look(self, depths: dict[Lane, int]) -> dict[Lane, list[ReadyJob]]:
        ready: dict[Lane, list[ReadyJob]] = {lane: [] for lane in depths}
        for job in await self._store.look([Pick(lane, depth) for lane, depth in depths.items()]):
            ready[job.lane].append(job)
        return ready


def start_of(job: DispatchedJob) -> StartWindow:
    """Return when the job may start under its strict rates."""
    if job.start is None:
        return _ANY_TIME
    return StartWindow(math.ceil(job.start), math.floor(job.start + STRICT_MARGIN * 1000) - _CLOCKS)
