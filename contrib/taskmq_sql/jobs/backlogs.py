"""Backlogs of queues: their due jobs that no scheduler has dispatched yet."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from taskmq.contracts.jobs import QueueBacklog
from taskmq_sql.steps import Runner, Steps, find_numbers, first

__all__ = ["SqlBacklogs"]

# Both read an index alone. That of gates has no queue, so its limit bounds what the partition's other queues cost.
_READY: Final = """
select count(*), min(due) from (select due from taskmq.ready where queue = $1 limit $2) found"""
_GATED: Final = """
select count(*), min(due) from (select queue, due from taskmq.gated where partition = $1 limit $2) found
where queue = $3"""


class SqlBacklogs:
    """Backlogs of a `DispatchStore`, from the database's tables.

    Args:
        partition_of: returns the partition of a queue.
    """

    def __init__(self, runner: Runner, partition_of: Callable[[str], int]) -> None:
        self._runner = runner
        self._partition_of = partition_of

    async def read(self, queues: Sequence[str], most: int) -> dict[str, QueueBacklog]:
        """See `DispatchStore.backlog`."""
        return await self._runner.read(partial(self._read, queues, most))

    def _read(self, queues: Sequence[str], most: int) -> Steps[dict[str, QueueBacklog]]:
        found: dict[str, QueueBacklog] = {}
        for queue, number in (yield from find_numbers("queue", queues)).items():
            ready = yield from first(_READY, number, most)
            gated = yield from first(_GATED, self._partition_of(queue), most, number)
            parts = [part for part in (ready, gated) if part is not None and part[0]]
            if parts:
                found[queue] = QueueBacklog(min(sum(part[0] for part in parts), most), min(part[1] for part in parts))
        return found
