"""Unschedulable jobs: no known node could ever meet their needs."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore, Lane, Pick
from taskmq.errors import InvalidOption
from taskmq.model.nodes import HostNode, JobNeeds, could_ever_fit

_MOST: Final = 5_000
# Jobs per read, so that dispatching on the same loop is not delayed.
_TOGETHER: Final = 200
_NOTHING: Final = JobNeeds()


async def unschedulable_jobs(app: TaskMQ, store: JobStore) -> dict[tuple[str, str, str], int]:
    """Count them by task, queue and tenant, among the first 5,000 jobs that wait for nodes.

    The limit is divided among the lanes, so that one tenant's jobs do not hide another's.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    dispatching = store.dispatching
    lanes = [
        lane
        for partition in range(dispatching.partitions)
        for lane in await dispatching.lanes(partition)
        if _is_placed(app, lane.queue)
    ]
    found: Counter[tuple[str, str, str]] = Counter()
    if not lanes:
        return found
    fitting = _Fitting(await store.nodes.nodes())
    left = dict.fromkeys(lanes, max(_MOST // len(lanes), 1))
    behind: dict[Lane, tuple[int, str]] = {}
    while left:
        some = _share(left)
        waiting = await store.nodes.waiting([Pick(*one) for one in some.items()], behind=behind)
        came = Counter(one.lane for one in waiting)
        for one in waiting:
            behind[one.lane] = one.place
            if not fitting.is_any(one.needs or _NOTHING):
                found[one.task, one.queue, one.tenant] += 1
        for lane, count in some.items():
            left[lane] -= count
            if came[lane] < count or not left[lane]:
                del left[lane]
        await asyncio.sleep(0)
    return found


def _share(left: Mapping[Lane, int]) -> dict[Lane, int]:
    """Return how many jobs to read from the first lanes, `_TOGETHER` in all."""
    some: dict[Lane, int] = {}
    room = _TOGETHER
    for lane, count in left.items():
        if room <= 0:
            break
        some[lane] = min(count, room)
        room -= some[lane]
    return some


def _is_placed(app: TaskMQ, queue: str) -> bool:
    try:
        return app.producer.queue(queue).placed
    except InvalidOption:
        # A version with other rules has submitted to it.
        return False


class _Fitting:
    """Cache of which needs some node could ever meet; many jobs have equal needs."""

    def __init__(self, nodes: Sequence[HostNode]) -> None:
        self._nodes = nodes
        self._known: dict[tuple[frozenset[tuple[str, object]], ...], bool] = {}

    def is_any(self, needs: JobNeeds) -> bool:
        key = (frozenset(needs.amounts.items()), frozenset(needs.labels.items()))
        if key not in self._known:
            self._known[key] = any(could_ever_fit(needs, node) for node in self._nodes)
        return self._known[key]
