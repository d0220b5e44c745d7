"""Orders of jobs: taskmq's own code, and other schedulers as their papers and manuals define them.

- `Ours`: `taskmq.scheduler.fairness`, with a policy and pools.
- `Fifo`: the earliest job.
- `Counted`: weighted round robin by number of jobs, regardless of run times, as in services with fairness keys.
- `InstantFair`: the tenant with the least running work by its weight, below its minimum first: YARN's FairScheduler.
- `Drf`: the tenant with the smallest dominant share of running work (Ghodsi et al., NSDI 2011).
"""

from collections import deque
from collections.abc import Iterable, Mapping

from benchmarks.fairness.simulation import VirtualJob
from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import FAIR, Amounts, QueuePolicy, TenantPool
from taskmq.scheduler.fairness import Shares
from taskmq.scheduler.fairness.order import Order

_QUEUE = "work"
_REPORTED_AFTER = 0.25


class Ours:
    """The scheduler's own decisions."""

    def __init__(
        self,
        policy: QueuePolicy = FAIR,
        pools: Iterable[TenantPool] = (),
        *,
        capacities: Amounts | None = None,
        needs: Mapping[str, Amounts] | None = None,
    ) -> None:
        self._needs = needs or {}
        self.shares = Shares()
        self.shares.resize(_QUEUE, capacities or {})
        self.configure(policy, pools)
        self.waiting: dict[Lane, deque[VirtualJob]] = {}
        self.running: dict[str, VirtualJob] = {}
        self._count = 0
        self._has_changed: set[Lane] = set()

    def configure(self, policy: QueuePolicy, pools: Iterable[TenantPool]) -> None:
        """Replace the policy and the pools."""
        self.shares.configure({_QUEUE: policy}, {pool.name: pool for pool in pools})

    def succeed(self, other: "Ours", *, now: float) -> "Ours":
        """Take over from a killed scheduler, knowing only the waiting and running jobs, and return self.

        The store knows that a job runs, and since when, once it has run for a quarter of a second.
        """
        self.waiting = other.waiting
        for lane, jobs in self.waiting.items():
            self.shares.add(lane, (jobs[0].submitted, jobs[0].expires))
        self.running = other.running
        self._count = sum(map(len, self.waiting.values()))
        self._account_for(self.running)
        for name, job in self.running.items():
            if job.started >= 0 and now - job.started > _REPORTED_AFTER:
                self.shares.start(name, now=now, ran=now - job.started)
        return self

    def on_arrival(self, job: VirtualJob) -> None:
        lane = _lane(job)
        waiting = self.waiting.get(lane)
        if waiting is None:
            waiting = self.waiting[lane] = deque()
            self.shares.add(lane, (job.submitted, job.expires))
        waiting.append(job)
        self._count += 1

    def next(self, room: int, now: float) -> list[VirtualJob]:
        # Picking by age is exact only one job at a time.
        room = 1 if self.shares.goes_by_heads(_QUEUE) else min(room, self._count)
        found: list[VirtualJob] = []
        for pick in self.shares.picks(lambda _: room, limit=room, now=now):
            waiting = self.waiting[pick.lane]
            found += [waiting.popleft() for _ in range(min(pick.count, len(waiting)))]
            if not waiting:
                del self.waiting[pick.lane]
                self.shares.drop(pick.lane)
            elif self.shares.goes_by_heads(_QUEUE):
                self.shares.add(pick.lane, (waiting[0].submitted, waiting[0].expires))
        self._count -= len(found)
        for job in found:
            self.running[str(job.number)] = job
        self._account_for({str(job.number): job for job in found})
        return found

    def _account_for(self, jobs: Mapping[str, VirtualJob]) -> None:
        needs = {name: self._needs[job.tenant] for name, job in jobs.items()} if self._needs else {}
        self.shares.resolve([(name, job.tenant, _lane(job)) for name, job in jobs.items()], needs)

    def on_return(self, job: VirtualJob) -> None:
        del self.running[str(job.number)]
        self.shares.end(str(job.number), 0.0)
        lane = _lane(job)
        self._count += 1
        self.waiting.setdefault(lane, deque()).appendleft(job)
        self.shares.add(lane, (job.submitted, job.expires))

    def on_start(self, job: VirtualJob, now: float) -> None:
        self.shares.start(str(job.number), now=now)

    def on_end(self, job: VirtualJob) -> None:
        del self.running[str(job.number)]
        self.shares.end(str(job.number), job.seconds)


def _lane(job: VirtualJob) -> Lane:
    return Lane(_QUEUE, job.priority, job.tenant)


class Fifo:
    """First in, first out."""

    def __init__(self) -> None:
        self._waiting: deque[VirtualJob] = deque()

    def on_arrival(self, job: VirtualJob) -> None:
        self._waiting.append(job)

    def next(self, room: int, now: float) -> list[VirtualJob]:
        return [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]

    def on_return(self, job: VirtualJob) -> None:
        self._waiting.appendleft(job)

    def on_start(self, job: VirtualJob, now: float) -> None:
        pass

    def on_end(self, job: VirtualJob) -> None:
        pass


class _ByTenant:
    """Base of orders that pick the tenant with the smallest key."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights or {}
        self._waiting: dict[str, deque[VirtualJob]] = {}
        self._order: Order[str] = Order()

    def on_arrival(self, job: VirtualJob) -> None:
        waiting = self._waiting.setdefault(job.tenant, deque())
        waiting.append(job)
        if job.tenant not in self._order:
            self._rejoin(job.tenant)
            self._order.put(job.tenant, (self._key(job.tenant), 0.0))

    def next(self, room: int, now: float) -> list[VirtualJob]:
        found: list[VirtualJob] = []
        while len(found) < room and (tenant := self._order.first()) is not None:
            waiting = self._waiting[tenant]
            job = waiting.popleft()
            found.append(job)
            self._charge(job)
            if waiting:
                self._order.put(tenant, (self._key(tenant), 0.0))
            else:
                self._order.discard(tenant)
        return found

    def on_return(self, job: VirtualJob) -> None:
        self._refund(job)
        self._waiting[job.tenant].appendleft(job)
        self._order.put(job.tenant, (self._key(job.tenant), 0.0))

    def on_start(self, job: VirtualJob, now: float) -> None:
        pass

    def on_end(self, job: VirtualJob) -> None:
        self._refund(job)
        if job.tenant in self._order:
            self._order.put(job.tenant, (self._key(job.tenant), 0.0))

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def _rejoin(self, tenant: str) -> None:
        pass

    def _charge(self, job: VirtualJob) -> None:
        raise NotImplementedError

    def _refund(self, job: VirtualJob) -> None:
        raise NotImplementedError

    def _key(self, tenant: str) -> float:
        raise NotImplementedError


class Counted(_ByTenant):
    """Order by the number of started jobs of each tenant."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        super().__init__(weights)
        self._virtual: dict[str, float] = {}
        self._clock = 0.0

    def _rejoin(self, tenant: str) -> None:
        self._virtual[tenant] = max(self._virtual.get(tenant, 0.0), self._clock)

    def _charge(self, job: VirtualJob) -> None:
        self._clock = max(self._clock, self._virtual[job.tenant])
        self._virtual[job.tenant] += 1 / self._weight(job.tenant)

    def _refund(self, job: VirtualJob) -> None:
        pass

    def _key(self, tenant: str) -> float:
        return self._virtual[tenant]


class InstantFair(_ByTenant):
    """Order by running jobs: tenants below their minimum first, by the fraction they have of it; then by weight."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, minimums: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(weights)
        self._minimums = minimums or {}
        self._running: dict[str, int] = {}

    def _charge(self, job: VirtualJob) -> None:
        self._running[job.tenant] = self._running.get(job.tenant, 0) + 1

    def _refund(self, job: VirtualJob) -> None:
        self._running[job.tenant] -= 1

    def _key(self, tenant: str) -> float:
        running = self._running.get(tenant, 0)
        least = self._minimums.get(tenant, 0.0)
        return running / least - 1 if running < least else running / self._weight(tenant)


class Drf(_ByTenant):
    """Order by the dominant share of the running jobs."""

    def __init__(self, capacities: Amounts, weights: Mapping[str, float] | None = None) -> None:
        super().__init__(weights)
        self._capacities = capacities
        self._used: dict[str, dict[str, float]] = {}

    def _charge(self, job: VirtualJob) -> None:
        self._add(job, 1)

    def _refund(self, job: VirtualJob) -> None:
        self._add(job, -1)

    def _add(self, job: VirtualJob, sign: int) -> None:
        used = self._used.setdefault(job.tenant, dict.fromkeys(self._capacities, 0.0))
        for name in used:
            used[name] += sign * job.needs.get(name, 0.0)

    def _key(self, tenant: str) -> float:
        used = self._used.get(tenant, {})
        return max((amount / self._capacities[name] for name, amount in used.items()), default=0.0) / self._weight(
            tenant
        )
