"""Due jobs, which move to their lanes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from taskmq.contracts.jobs import (
    DueJob,
    Lane,
    partition_key,
)
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.statements.dispatch import (
    FIRE,
)


@dataclass(eq=False, slots=True)
class _Call:
    """A call of `fire`: due jobs of one partition.

    Attributes:
        lanes: the result, once known.
        error: the failure, if any.
    """

    key: str
    epoch: int
    jobs: Sequence[DueJob]
    lanes: set[Lane] | None = None
    error: Exception | None = None


class DueJobs:
    """Due jobs of all partitions: calls that arrive during one statement share the next one.

    With one statement per partition, eight partitions would need 500 commits a second for 500 jobs a second.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Call] = []
        self._firing = asyncio.Lock()

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        """Implement `DispatchStore.fire`. Of calls that share a statement, one returns the lanes of all."""
        if not jobs:
            return set()
        call = _Call(partition_key(partition), epoch, jobs)
        self._waiting.append(call)
        try:
            async with self._firing:
                if call.lanes is None and call.error is None:
                    # Lets other partitions that are due now join.
                    await asyncio.sleep(0)
                    together, self._waiting = self._waiting, []
                    await self._fire(together, call)
        finally:
            if call in self._waiting:
                self._waiting.remove(call)
        if call.error is not None:
            raise call.error
        return call.lanes or set()

    async def _fire(self, calls: Sequence[_Call], leader: _Call) -> None:
        try:
            lanes = await self._lanes(calls)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for call in calls:
                call.error = error
            return
        except BaseException:
            # Only this caller was cancelled: the next one fires the due jobs of the others, unless the statement
            # already did.
            self._waiting = [call for call in calls if call is not leader] + self._waiting
            raise
        for call in calls:
            call.lanes = lanes if call is leader else set()

    async def _lanes(self, calls: Sequence[_Call]) -> set[Lane]:
        keys = {job.id: (job, call.key) for call in calls for job in call.jobs}
        found = sorted(keys.values(), key=lambda each: each[0].id)

        async def fire(connection: Connection) -> Sequence[Row]:
            return await connection.fetch(
                FIRE,
                [job.shard for job, _ in found],
                [job.due for job, _ in found],
                [job.id for job, _ in found],
                [call.key for call in calls],
                [call.epoch for call in calls],
                [key for _, key in found],
            )

        rows = await self._database.steps.run("statement", fire)
        names = self._database.names
        queues = await names.texts("queue", {row[0] for row in rows})
        tenants = await names.texts("tenant", {row[2] for row in rows})
        return {Lane(queues[queue], priority, tenants[tenant]) for queue, priority, tenant in rows}
