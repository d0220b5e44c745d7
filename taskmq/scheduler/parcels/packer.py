"""The choice of the jobs that travel together. Pure.

A job travels alone if it may wait for something, or if its run may be long:

    its task     has no short runs, limits, resources, an idempotency key or `ack="early"`, or is unknown here
    the job      has begun before, its message came back, it is placed on a node, or it has claims, a start under a
                 strict rate, an order key or options of its own for the run
    its queue    has workers that do not unpack parcels, or fewer than two jobs for a parcel

A parcel has jobs of one task. Each process that consumes the queue gets at least four parcels of a batch, so that the
processes end at about the same time.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchedJob
from taskmq.scheduler.parcels.short_tasks import ShortTasks

_MOST: Final = 25
_PARCELS_OF_EACH: Final = 4
# Bytes of a parcel, and of what an invitation adds to a job's body.
_LONGEST: Final = 262_144
_ADDED: Final = 512
# Fields of a body with options of the job's run, and with its order.
_SPECIAL: Final = (b'"order_key":', b'"run":')


class Packer:
    """Chooses the jobs that travel together.

    Args:
        count_unpacking: number of processes that consume a queue; 0 if one of them does not unpack parcels.
        is_plain: whether jobs of a task never wait at a worker.
    """

    def __init__(
        self, short: ShortTasks, *, count_unpacking: Callable[[str], int], is_plain: Callable[[str], bool]
    ) -> None:
        self._short = short
        self._count_unpacking = count_unpacking
        self._is_plain = is_plain

    def pack(
        self, jobs: Sequence[DispatchedJob], *, now: float, alone: Collection[str] = ()
    ) -> list[list[DispatchedJob]]:
        """Divide the jobs into those of one message each, in order as far as possible.

        Args:
            now: seconds of the clock of `ShortTasks`.
            alone: ids of jobs that have to travel alone.
        """
        found: dict[tuple[str, str], list[DispatchedJob]] = {}
        messages: list[list[DispatchedJob]] = []
        suits: dict[str, bool] = {}
        for job in jobs:
            task = job.task
            if task not in suits:
                suits[task] = self._is_plain(task) and self._short.is_short(task, now=now)
            if suits[task] and job.id not in alone and _may_travel_in_parcel(job):
                found.setdefault((job.queue, task), []).append(job)
            else:
                messages.append([job])
        sizes = {queue: self._size(queue, found) for queue in {queue for queue, _ in found}}
        for (queue, _), its in found.items():
            messages += _divide(its, sizes[queue])
        return messages

    def _size(self, queue: str, found: dict[tuple[str, str], list[DispatchedJob]]) -> int:
        processes = self._count_unpacking(queue)
        if not processes:
            return 1
        jobs = sum(len(its) for (its_queue, _), its in found.items() if its_queue == queue)
        return min(_MOST, jobs // (_PARCELS_OF_EACH * processes))


def _may_travel_in_parcel(job: DispatchedJob) -> bool:
    return (
        job.crashes is None
        and job.attempt == 1
        and job.due is not None
        and not job.outages
        and not job.node
        and not job.claims
        and job.start is None
        and not any(each in job.body for each in _SPECIAL)
    )


def _divide(jobs: list[DispatchedJob], size: int) -> list[list[DispatchedJob]]:
    parcels: list[list[DispatchedJob]] = []
    left = 0
    for job in jobs:
        needed = len(job.body) + _ADDED
        if not parcels or len(parcels[-1]) >= size or needed > left:
            parcels.append([])
            left = _LONGEST
        parcels[-1].append(job)
        left -= needed
    return parcels
