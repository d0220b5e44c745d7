"""Whose turn it is in the queues of one partition, and what each has had. Pure: times are seconds.

    refresh (lanes) -> picks -> taken (the jobs that were found) -> began -> ended (what they took)

A class that has no jobs leaves its turns to the others, and no class is ever without: nothing starves behind a flood
of higher ones. Within a class each tenant gets as much run time as any other, or by its pool's weight, whatever the
others have queued.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from taskmq.contracts.jobs import Lane, Pick
from taskmq.model.jobs.pools import FAIR, Amounts, QueuePolicy, TenantPool
from taskmq.scheduler.fairness.costs import RunTimes
from taskmq.scheduler.fairness.queue_turns import BY_HEADS, Head, QueueTurns

__all__ = ["Shares"]

_SLOTS: Final[Mapping[str, Amounts]] = {}


class Shares:
    """Deals out turns among the lanes that have jobs."""

    def __init__(self) -> None:
        self._capacities: dict[str, Amounts] = {}
        self._policies: Mapping[str, QueuePolicy] = {}
        self._pools: Mapping[str, TenantPool] = {}
        self._times = RunTimes()
        self._queues: OrderedDict[str, QueueTurns] = OrderedDict()
        self._backlog: dict[str, dict[Lane, Head | None]] = {}
        self._queue_of: dict[str, str] = {}

    def __len__(self) -> int:
        """How many queues have jobs that are ready, as far as is known here."""
        return sum(1 for turns in self._queues.values() if len(turns))

    def configure(self, policies: Mapping[str, QueuePolicy], pools: Mapping[str, TenantPool]) -> None:
        """From now on it is so; what waits and what is in flight is dealt with accordingly.

        Raises:
            InvalidOption: these are no pools, see `check_pools`; nothing is changed then.
        """
        if policies == self._policies and pools == self._pools:
            return
        self._queues = OrderedDict(
            (queue, self._turns(queue, policies, pools, before)) for queue, before in self._queues.items()
        )
        self._policies, self._pools = dict(policies), dict(pools)

    def resize(self, queue: str, capacities: Amounts) -> None:
        """The nodes on which jobs of a queue are placed have so much: a job counts by its largest part of it."""
        self._capacities[queue] = capacities
        if (turns := self._queues.get(queue)) is not None:
            turns.capacities = capacities

    def refresh(self, lanes: Iterable[Lane], heads: Mapping[Lane, Head] | None = None) -> None:
        """These are the lanes that have jobs. Who was there before keeps its place.

        Args:
            heads: of lanes in queues whose policy goes by age (`goes_by_heads`).
        """
        by_queue: dict[str, dict[Lane, Head | None]] = {}
        for lane in lanes:
            by_queue.setdefault(lane.queue, {})[lane] = None if heads is None else heads.get(lane)
        for queue, turns in list(self._queues.items()):
            if queue not in by_queue:
                turns.refresh({})
                self._drop_idle(queue)
        self._backlog = by_queue
        for queue, its in by_queue.items():
            self._of(queue).refresh(its)

    def arrived(self, lane: Lane, head: Head | None = None) -> None:
        """The lane has jobs, or another first one."""
        self._backlog.setdefault(lane.queue, {})[lane] = head
        self._of(lane.queue).add(lane, head)

    @property
    def pools(self) -> Mapping[str, TenantPool]:
        """All pools, by name: another object after each change."""
        return self._pools

    def described(self, queue: str) -> tuple[QueuePolicy, Mapping[str, TenantPool]]:
        """How a queue takes turns, and all pools."""
        return self._policies.get(queue, FAIR), self._pools

    def goes_by_heads(self, queue: str) -> bool:
        """Whether a queue goes by the age of jobs."""
        return self._policies.get(queue, FAIR).policy in BY_HEADS

    def exhausted(self, lane: Lane) -> None:
        """The lane had fewer jobs than were picked: none counts as waiting until the next refresh."""
        if (turns := self._queues.get(lane.queue)) is not None:
            turns.remove(lane)
            self._backlog.get(lane.queue, {}).pop(lane, None)
            self._drop_idle(lane.queue)

    def picks(self, room: Callable[[str], int], *, limit: int, now: float = 0.0) -> list[Pick]:
        """Up to `limit` jobs, of each queue at most as many as it has room for.

        The queues take turns at being the first, so that none of them uses up the limit of all. What is picked counts
        as in flight until `taken`.
        """
        found: list[Pick] = []
        for queue, turns in self._queues.items():
            if len(turns) and (count := min(room(queue), limit)) > 0:
                turns.look_at_running(now=now)
                picked = turns.picks(count)
                limit -= sum(picked.values())
                found += [Pick(lane, number) for lane, number in picked.items()]
        if found:
            self._queues.move_to_end(found[0].lane.queue)
        return found

    def taken(self, jobs: Iterable[tuple[str, str, Lane]], needs_of: Mapping[str, Amounts] = _SLOTS) -> None:
        """What was picked has come to these jobs, which are in flight now: id, task and lane of each.

        Also those that an earlier holder of the partition has dispatched.

        Args:
            needs_of: by id, what jobs take that take more than a slot.
        """
        by_queue: dict[str, list[tuple[str, str, Lane]]] = {}
        for job in jobs:
            self.ended(job[0], 0.0)
            self._queue_of[job[0]] = job[2].queue
            by_queue.setdefault(job[2].queue, []).append(job)
        for queue in [*self._queues, *(queue for queue in by_queue if queue not in self._queues)]:
            self._of(queue).taken(by_queue.get(queue, ()), needs_of)

    def began(self, job_id: str, *, now: float, ran: float = 0.0) -> None:
        """A job is known to run.

        Args:
            ran: for how long it has already, where an earlier holder of the partition has dispatched it.
        """
        if (queue := self._queue_of.get(job_id)) is not None:
            self._queues[queue].began(job_id, now=now, ran=ran)

    def ended(self, job_id: str, seconds: float | None) -> None:
        """A job has left.

        Args:
            seconds: for which it has run, 0: it never did; None: unknown.
        """
        queue = self._queue_of.pop(job_id, None)
        if queue is None:
            return
        turns = self._queues[queue]
        job = turns.flights.find(job_id)
        is_first = False
        if job is not None and seconds:
            is_first = not self._times.knows(job.task)
            self._times.took(job.task, job.lane, seconds)
        turns.ended(job_id, seconds)
        if is_first and job is not None:
            for each in self._queues.values():
                each.learned(job.task)
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
