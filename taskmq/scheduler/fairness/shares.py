"""Turns of the queues of one partition, and the accounts of their run time. Pure: times are seconds.

    refresh (lanes) -> picks -> resolve (the dispatched jobs) -> start -> end (their run time)

A class without jobs leaves its turns to the others, and every class gets turns, so no job starves behind a flood of
higher ones. Within a class each tenant gets the same run time, or that of its pool's weight, however many jobs the
others have queued.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from taskmq.contracts.jobs import Lane, Pick
from taskmq.model.jobs.pools import FAIR, Amounts, QueuePolicy, TenantPool
from taskmq.scheduler.fairness.costs import RunTimes
from taskmq.scheduler.fairness.lane_tree import BY_HEADS
from taskmq.scheduler.fairness.queue_turns import Head, QueueTurns

_SLOTS: Final[Mapping[str, Amounts]] = {}


class Shares:
    """Turns of the lanes with jobs, over all queues of a partition."""

    def __init__(self) -> None:
        self._capacities: dict[str, Amounts] = {}
        self._policies: Mapping[str, QueuePolicy] = {}
        self._pools: Mapping[str, TenantPool] = {}
        self._times = RunTimes()
        self._queues: OrderedDict[str, QueueTurns] = OrderedDict()
        self._backlog: dict[str, dict[Lane, Head | None]] = {}
        self._queue_of: dict[str, str] = {}

    def __len__(self) -> int:
        """Return the number of queues with known ready jobs."""
        return sum(1 for turns in self._queues.values() if len(turns))

    def configure(self, policies: Mapping[str, QueuePolicy], pools: Mapping[str, TenantPool]) -> None:
        """Apply policies and pools, also to waiting jobs and jobs in flight.

        Raises:
            InvalidOption: the pools are invalid, see `check_pools`; nothing was changed.
        """
        if policies == self._policies and pools == self._pools:
            return
        self._queues = OrderedDict(
            (queue, self._turns(queue, policies, pools, before)) for queue, before in self._queues.items()
        )
        self._policies, self._pools = dict(policies), dict(pools)

    def resize(self, queue: str, capacities: Amounts) -> None:
        """Set the capacity of a placed queue's nodes; a job counts by its largest part of it."""
        self._capacities[queue] = capacities
        if (turns := self._queues.get(queue)) is not None:
            turns.capacities = capacities

    def refresh(self, lanes: Iterable[Lane], heads: Mapping[Lane, Head] | None = None) -> None:
        """Replace the lanes with jobs; present ones keep their turns.

        Args:
            heads: first jobs of lanes, for queues that order by age (`goes_by_heads`).
        """
        by_queue: dict[str, dict[Lane, Head | None]] = {}
        for lane in lanes:
            by_queue.setdefault(lane.queue, {})[lane] = None if heads is None else heads.get(lane)
        for queue, turns in list(self._queues.items()):
            if queue not in by_queue:
                turns.refresh({})
                self._drop_idle(queue)
        self._backlog = by_queue
        for queue, lanes_of_queue in by_queue.items():
            self._of(queue).refresh(lanes_of_queue)

    def add(self, lane: Lane, head: Head | None = None) -> None:
        """Add a lane with jobs, or update its first job."""
        self._backlog.setdefault(lane.queue, {})[lane] = head
        self._of(lane.queue).add(lane, head)

    @property
    def pools(self) -> Mapping[str, TenantPool]:
        """Pools by name; a new object after each change."""
        return self._pools

    def rules_of(self, queue: str) -> tuple[QueuePolicy, Mapping[str, TenantPool]]:
        """Return the policy of a queue, and all pools."""
        return self._policies.get(queue, FAIR), self._pools

    def goes_by_heads(self, queue: str) -> bool:
        """Whether a queue orders by the age of jobs."""
        return self._policies.get(queue, FAIR).policy in BY_HEADS

    def drop(self, lane: Lane) -> None:
        """Drop a lane that had fewer jobs than were picked, until the next refresh."""
        if (turns := self._queues.get(lane.queue)) is not None:
            turns.remove(lane)
            self._backlog.get(lane.queue, {}).pop(lane, None)
            self._drop_idle(lane.queue)

    def picks(self, room: Callable[[str], int], *, limit: int, now: float = 0.0) -> list[Pick]:
        """Pick up to `limit` jobs, and from each queue at most as many as it has room for.

        The queues take turns at being first, so that none uses up the whole limit. Picked jobs count as in flight
        until `resolve` is called.
        """
        found: list[Pick] = []
        for queue, turns in self._queues.items():
            if len(turns) and (count := min(room(queue), limit)) > 0:
                turns.charge_late(now=now)
                picked = turns.picks(count)
                limit -= sum(picked.values())
                found += [Pick(lane, number) for lane, number in picked.items()]
        if found:
            self._queues.move_to_end(found[0].lane.queue)
        return found

    def resolve(self, jobs: Iterable[tuple[str, str, Lane]], needs_of: Mapping[str, Amounts] = _SLOTS) -> None:
        """Replace the picks by the jobs that were dispatched: id, task and lane of each.

        Also adds jobs that an earlier holder of the partition dispatched.

        Args:
            needs_of: needs of jobs that need more than one slot, by id.
        """
        by_queue: dict[str, list[tuple[str, str, Lane]]] = {}
        for job in jobs:
            if job[0] in self._queue_of:
                self.end(job[0], 0.0)
            self._queue_of[job[0]] = job[2].queue
            by_queue.setdefault(job[2].queue, []).append(job)
        for queue in [*self._queues, *(queue for queue in by_queue if queue not in self._queues)]:
            self._of(queue).resolve(by_queue.get(queue, ()), needs_of)

    def start(self, job_id: str, *, now: float, ran: float = 0.0) -> None:
        """Record that a job is running.

        Args:
            ran: seconds it has already run, if an earlier holder of the partition dispatched it.
        """
        if (queue := self._queue_of.get(job_id)) is not None:
            self._queues[queue].start(job_id, now=now, ran=ran)

    def end(self, job_id: str, seconds: float | None) -> None:
        """Remove a job that has left.

        Args:
            seconds: how long it ran; 0: not at all; None: unknown.
        """
        self.end_all([(job_id, seconds)])

    def end_all(self, jobs: Iterable[tuple[str, float | None]]) -> None:
        """Remove jobs that have left, with the same effect as one by one.

        Args:
            jobs: the id of each, and the seconds as of `end`.
        """
        ended: dict[str, list[tuple[str, float | None]]] = {}
        for job_id, seconds in jobs:
            queue = self._queue_of.pop(job_id, None)
            if queue is None:
                continue
            ended.setdefault(queue, []).append((job_id, seconds))
            job = self._queues[queue].flights.find(job_id)
            if job is None or not seconds:
                continue
            is_first = not self._times.knows(job.task)
            self._times.record_run(job.task, job.lane, seconds)
            if is_first:
                # These ran without this knowledge.
                self._settle(ended)
                ended = {}
                for each in self._queues.values():
                    each.learn(job.task)
        self._settle(ended)

    def _settle(self, ended: Mapping[str, Sequence[tuple[str, float | None]]]) -> None:
        for queue, jobs in ended.items():
            self._queues[queue].end(jobs)
            self._drop_idle(queue)

    def _of(self, queue: str) -> QueueTurns:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = self._turns(queue, self._policies, self._pools, None)
        return found

    def _turns(
        self,
        queue: str,
        policies: Mapping[str, QueuePolicy],
        pools: Mapping[str, TenantPool],
        before: QueueTurns | None,
    ) -> QueueTurns:
        turns = QueueTurns(
            policies.get(queue, FAIR),
            pools,
            self._times,
            () if before is None else before.flights,
            capacities=self._capacities.get(queue),
        )
        turns.refresh(self._backlog.get(queue, {}))
        return turns

    def _drop_idle(self, queue: str) -> None:
        turns = self._queues[queue]
        if not len(turns) and not len(turns.flights):
            del self._queues[queue]
