"""A cluster scheduled by `Shares`, with a backlog, and no broker or store."""

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import count

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import (
    Amounts,
    QueuePolicy,
    TenantPool,
)
from taskmq.model.topology import Policy
from taskmq.scheduler.fairness import Head, Shares

QUEUE = "work"
FOREVER = float("inf")


class Cluster:
    """Shares with a backlog: picks, starts and ends jobs; `needs` by tenant."""

    def __init__(
        self,
        policy: QueuePolicy | Policy = "fair",
        pools: Mapping[str, TenantPool] | None = None,
        *,
        needs: Mapping[str, Amounts] | None = None,
        capacities: Amounts | None = None,
    ) -> None:
        self.shares = Shares()
        self.shares.resize(QUEUE, capacities or {})
        self.needs = needs or {}
        self.waiting: dict[Lane, deque[Head]] = defaultdict(deque)
        self.running: dict[str, Lane] = {}
        self.numbers = count(1)
        self.now = 0.0
        self.ends: list[tuple[float, str]] = []
        self.configure(policy, pools)

    def configure(self, policy: QueuePolicy | Policy, pools: Mapping[str, TenantPool] | None = None) -> None:
        self.policy = policy if isinstance(policy, QueuePolicy) else QueuePolicy(policy=policy)
        self.shares.configure({QUEUE: self.policy}, pools or {})

    def submit(
        self, tenant: str = "", jobs: int = 1, *, priority: int = 4, expires: float = FOREVER, due: float = 0.0
    ) -> Lane:
        lane = Lane(QUEUE, priority, tenant)
        self.waiting[lane].extend([(due, expires)] * jobs)
        self.shares.add(lane, self.waiting[lane][0])
        return lane

    def start(self, room: int = 1, *, found: int | None = None) -> list[tuple[str, Lane]]:
        """Start that many jobs; `found` limits the existing jobs per pick."""
        started: list[tuple[str, Lane]] = []
        for pick in self.shares.picks(lambda _: room, limit=room, now=self.now):
            waiting = self.waiting[pick.lane]
            for _ in range(min(pick.count, len(waiting), pick.count if found is None else found)):
                waiting.popleft()
                started.append((str(next(self.numbers)), pick.lane))
            if not waiting:
                self.shares.drop(pick.lane)
            elif self.shares.goes_by_heads(pick.lane.queue):
                self.shares.add(pick.lane, waiting[0])
        needs = {name: self.needs[lane.tenant] for name, lane in started if lane.tenant in self.needs}
        self.shares.resolve([(name, lane.tenant, lane) for name, lane in started], needs)
        self.running.update(started)
        return started

    def end(self, name: str, seconds: float | None = 1.0) -> None:
        del self.running[name]
        self.shares.end(name, seconds)

    def run(self, seconds: Mapping[str, float], *, slots: int, until: float) -> dict[str, float]:
        """Run the backlog; return the worker-seconds of each tenant."""
        used: dict[str, float] = defaultdict(float)
        ends = self.ends
        while self.now < until:
            for name, lane in self.start(slots - len(self.running)):
                ends.append((self.now + seconds[lane.tenant], name))
                self.shares.start(name, now=self.now)
            ends.sort(reverse=True)
            self.now, name = ends.pop()
            used[self.running[name].tenant] += seconds[self.running[name].tenant]
            self.end(name, seconds[self.running[name].tenant])
        return used

    def order(self, jobs: int) -> list[Lane]:
        """Return the order of turns if each job ends at once."""
        found: list[Lane] = []
        for _ in range(jobs):
            for name, lane in self.start():
                found.append(lane)
                self.end(name)
        return found


def pools_of(*pools: TenantPool) -> dict[str, TenantPool]:
    return {pool.name: pool for pool in pools}
