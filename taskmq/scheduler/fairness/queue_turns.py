"""Turns of the lanes of one queue. Pure.

    a pool below its minimum, the furthest below first
    else: priority class -> pool -> ... -> tenant -> lane (`branches`), skipping those at their caps

Every job is charged to the branches that were served, including jobs that a pool got for its minimum.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import SLOTS_ASKED, Amounts, QueuePolicy, TenantPool
from taskmq.scheduler.fairness.accounts import ONE_SLOT
from taskmq.scheduler.fairness.branches import Branch, Leaf
from taskmq.scheduler.fairness.costs import ChargedJob, Flights, RunTimes
from taskmq.scheduler.fairness.lane_tree import BY_HEADS, LaneTree
from taskmq.scheduler.fairness.order import Key

Head = tuple[float, float]
"""First job of a lane: when it became due and when it expires, in seconds."""

_Charge = tuple[Amounts, float]

_NOTHING: Final = 1e-12
_NO_HEAD: Final[Head] = (0.0, inf)
_SLOTS: Final[Mapping[str, Amounts]] = {}


class QueueTurns:
    """Turns of the lanes of one queue, and the accounts of its jobs in flight.

    A new instance with the same backlog and jobs in flight continues where another one was.

    The needs of a job are known once it is dispatched. Until then it is charged like the previous job of its lane,
    and only caps of slots apply; the placement on nodes checks the other caps for each job (`Caps`).

    Args:
        capacities: capacities of resources, as far as known.

    Raises:
        InvalidOption: the pools are invalid, see `check_pools`.
    """

    def __init__(
        self,
        policy: QueuePolicy,
        pools: Mapping[str, TenantPool],
        times: RunTimes,
        flights: Iterable[ChargedJob] = (),
        *,
        capacities: Amounts | None = None,
    ) -> None:
        self.policy = policy
        self.capacities: Amounts = capacities or {}
        self._slots = 1.0
        self._times = times
        self._tree = LaneTree(policy, pools)
        self._has_pools = bool(pools)
        self._has_caps = any(pool.max for pool in pools.values())
        self._lanes: set[Lane] = set()
        self._picked: dict[Lane, list[_Charge]] = {}
        self.flights = Flights()
        self.by_heads = policy.policy in BY_HEADS
        for job in flights:
            self._fly(job)

    def __len__(self) -> int:
        """Return the number of lanes with known jobs."""
        return len(self._lanes)

    def refresh(self, lanes: Mapping[Lane, Head | None]) -> None:
        """Replace the lanes with jobs; present ones keep their turns."""
        for lane in self._lanes - lanes.keys():
            self.remove(lane)
        self._tree.prune_owing()
        for lane in lanes if self.by_heads else sorted(lanes.keys() - self._lanes):
            self.add(lane, lanes[lane])

    def add(self, lane: Lane, head: Head | None) -> None:
        """Add a lane with jobs; `head` is its first job, for policies that order by age."""
        self._lanes.add(lane)
        leaf = self._tree.leaf(lane)
        leaf.put(lane, self._key(lane, head or _NO_HEAD))
        if leaf.is_listed:
            if self.by_heads:
                leaf.reorder()
            return
        leaf.list_up()
        self._tree.see(leaf.account)

    def remove(self, lane: Lane) -> None:
        """Remove a lane without jobs."""
        if lane not in self._lanes:
            return
        self._lanes.discard(lane)
        leaf = self._tree.leaf(lane)
        leaf.forget(lane)
        if leaf.is_empty:
            leaf.unlist()
            self._tree.see(leaf.account)
            self._tree.prune(leaf)
        elif self.by_heads:
            leaf.reorder()

    def _key(self, lane: Lane, head: Head) -> Key:
        due, expires = head
        match self.policy.policy:
            case "deadline":
                return (expires, due)
            case "priority" if self.policy.strict:
                return (-lane.priority, due)
            case "priority":
                # A waiting job gains one priority per `ageing` seconds.
                return (due - lane.priority * self.policy.ageing, -lane.priority)
            case _:
                return (due, 0.0)

    def picks(self, count: int) -> dict[Lane, int]:
        """Pick up to `count` jobs by lane; fewer if all others have to wait.

        Picked jobs count as in flight until `resolve` is called.
        """
        self._slots = self.capacities.get(SLOTS_ASKED) or len(self.flights) + self._open() + float(count)
        if not self._has_pools and not self.by_heads and len(self._tree.root.children) == 1:
            (branch,) = self._tree.root.children
            if len(branch.children) > 1:
                return self._deal(branch, count)
        part = self._tree.accounts.honourable_part({**self.capacities, SLOTS_ASKED: self._slots})
        found: dict[Lane, int] = {}
        while count > 0 and (picked := self._pick(part, count)) is not None:
            lane, number = picked
            found[lane] = found.get(lane, 0) + number
            count -= number
        return found

    def resolve(self, jobs: Iterable[tuple[str, str, Lane]], needs_of: Mapping[str, Amounts] = _SLOTS) -> None:
        """Replace the picks by the jobs that were dispatched: id, task and lane of each.

        Args:
            needs_of: needs of jobs that need more than one slot, by id.
        """
        picked, self._picked = self._picked, {}
        found: dict[Lane, list[ChargedJob]] = {}
        for job_id, task, lane in jobs:
            needs = needs_of.get(job_id, ONE_SLOT)
            job = ChargedJob(job_id, task, lane, needs, self._worth(needs), 0.0)
            job.seconds = self._expect(job)
            found.setdefault(lane, []).append(job)
        for lane in [*picked, *(lane for lane in found if lane not in picked)]:
            self._settle(self._tree.leaf(lane), picked.get(lane, []), found.get(lane, []))

    def _settle(self, leaf: Leaf, picked: list[_Charge], found: list[ChargedJob]) -> None:
        cost, since = 0.0, leaf.clocks()
        for job in found:
            job.since = since
            self.flights.add(job, is_guessed=not self._times.knows(job.task))
            cost += job.worth * job.seconds
        for _, charged in picked:
            cost -= charged
        for (needs, _), job in zip(picked, found, strict=False):
            if needs is not job.needs:
                self._tree.give(leaf, needs)
                self._tree.take(leaf, job.needs)
        for needs, _ in picked[len(found) :]:
            self._tree.give(leaf, needs)
        for job in found[len(picked) :]:
            self._tree.take(leaf, job.needs)
        if found:
            _learn(leaf, found[-1])
        # Ignores rounding errors.
        if abs(cost) > _NOTHING:
            leaf.charge(cost)
        self._tree.prune(leaf)

    def _deal(self, branch: Branch, count: int) -> dict[Lane, int]:
        """Pick jobs of several tenants in one class, without pools: as one by one, but count each lane once."""
        found: dict[Lane, int] = {}
        dealt: dict[Lane, tuple[Leaf, Amounts, float]] = {}
        root, children = self._tree.root, branch.children
        for _ in range(count):
            leaf = children.first()
            assert isinstance(leaf, Leaf)
            lane = leaf.lanes.first()
            assert lane is not None
            if (known := dealt.get(lane)) is None:
                needs = leaf.needs.get(lane, ONE_SLOT)
                cost = self._worth(needs) * self._seconds(self._times.expected_next(lane))
                dealt[lane] = leaf, needs, cost
            else:
                cost = known[2]
            if len(leaf.lanes) > 1:
                leaf.record_served(lane, 1)
            found[lane] = found.get(lane, 0) + 1
            root.clock = max(root.clock, branch.virtual)
            branch.clock = max(branch.clock, leaf.virtual)
            leaf.flying += cost
            leaf.virtual += cost / leaf.weight
            branch.flying += cost
            branch.virtual += cost / branch.weight
            children.put(leaf, (leaf.virtual, 0.0))
        root.children.put(branch, root.key_of(branch))
        for lane, (leaf, needs, cost) in dealt.items():
            if len(leaf.lanes) == 1:
                leaf.record_served(lane, found[lane])
            self._tree.take(leaf, needs, found[lane])
            self._picked.setdefault(lane, []).extend([(needs, cost)] * found[lane])
        return found

    def _pick(self, part: float, most: int) -> tuple[Lane, int] | None:
        while True:
            leaf = self._tree.find_owed(part) or self._tree.root.serve()
            if leaf is None:
                return None
            lane = leaf.lanes.first()
            assert lane is not None
            assert leaf.account is not None
            needs = leaf.needs.get(lane, ONE_SLOT)
            if self._has_caps and (full := leaf.account.full(ONE_SLOT)) is not None:
                self._tree.block(full)
                continue
            # A single lane needs no turns.
            number = most if most > 1 and leaf.is_alone() else 1
            leaf.record_served(lane, number)
            self._tree.take(leaf, needs, number)
            cost = self._worth(needs) * self._seconds(self._times.expected_next(lane))
            self._picked.setdefault(lane, []).extend([(needs, cost)] * number)
            leaf.charge(cost * number)
            if number > 1:
                leaf.catch_up(cost)
            return lane, number

    def start(self, job_id: str, *, now: float, ran: float = 0.0) -> None:
        """Record that a job is running; it is charged more if it runs longer than charged.

        Args:
            ran: run time before it was known here; only the rest is charged.
        """
        if self.policy.policy == "round_robin":
            return
        job = self.flights.find(job_id)
        if ran and job is not None and job.began is None:
            job.ran = ran
            self._charge(job, self._expect(job))
        self.flights.start(job_id, now=now)

    def learn(self, task: str) -> None:
        """Charge a task's jobs in flight anew, because its first run has ended and replaces the guess."""
        for job in self.flights.take_guessed(task):
            seconds = self._expect(job)
            self._charge(job, max(seconds, job.seconds) if job.is_late else seconds)

    def charge_late(self, *, now: float) -> None:
        """Double the charge for jobs that run longer than charged."""
        for job in self.flights.iterate_overdue(now=now):
            job.is_late = True
            self._charge(job, 2 * job.seconds)

    def end(self, jobs: Sequence[tuple[str, float | None]]) -> None:
        """Remove jobs in flight that have left, with the same effect as one by one.

        Args:
            jobs: the id of each, and how many seconds it ran; None: unknown.
        """
        if self._has_caps:
            # The end of one may list branches whose place depends on the places of the others.
            for job in jobs:
                self._end((job,))
        else:
            self._end(jobs)

    def _end(self, jobs: Sequence[tuple[str, float | None]]) -> None:
        # In the order of the last job of each, because equals are ordered by their last change.
        leaves: dict[Leaf, None] = {}
        for job_id, seconds in jobs:
            job = self.flights.remove(job_id)
            leaf = self._tree.leaf(job.lane)
            self._tree.give(leaf, job.needs)
            took = job.seconds if seconds is None else self._seconds(max(seconds - job.ran, 0.0))
            leaf.settle(job.worth * job.seconds, job.worth * took, job.since)
            leaves.pop(leaf, None)
            leaves[leaf] = None
        for leaf in leaves:
            leaf.reorder()
            self._tree.prune(leaf)

    def _fly(self, job: ChargedJob) -> None:
        leaf = self._tree.leaf(job.lane)
        _learn(leaf, job)
        job.seconds = self._expect(job)
        self._tree.take(leaf, job.needs)
        job.since = leaf.clocks()
        self.flights.add(job, is_guessed=not self._times.knows(job.task))
        leaf.charge(job.worth * job.seconds)

    def _charge(self, job: ChargedJob, seconds: float) -> None:
        self._tree.leaf(job.lane).charge(job.worth * (seconds - job.seconds))
        job.seconds = seconds

    def _expect(self, job: ChargedJob) -> float:
        """Return the charge: the rest of the expected run, or as much again if it already ran longer."""
        seconds = self._times.expect(job.task, job.lane)
        return self._seconds(seconds - job.ran if seconds > job.ran else job.ran)

    def _seconds(self, seconds: float) -> float:
        """Return the charged run time; in `round_robin` each run is one turn."""
        return 1.0 if self.policy.policy == "round_robin" else seconds

    def _worth(self, needs: Amounts) -> float:
        """Return the worth in slots, by the resource with the largest part (dominant resource)."""
        slots = needs.get(SLOTS_ASKED, 0.0)
        if len(needs) == 1:
            return slots
        known = self.capacities
        parts = [amount * self._slots / known[name] for name, amount in needs.items() if known.get(name)]
        return max(parts, default=slots)

    def _open(self) -> int:
        return sum(map(len, self._picked.values()))


def _learn(leaf: Leaf, job: ChargedJob) -> None:
    """Assume the same needs for the next job of the lane."""
    if job.needs is ONE_SLOT:
        leaf.needs.pop(job.lane, None)
    else:
        leaf.needs[job.lane] = job.needs
