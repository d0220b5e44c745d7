"""Jobs placed on nodes in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchBatch, Lane, Pick, UnplacedJob, partition_key
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.nodes import Placement, startable
from taskmq_sql.jobs.values import chances, decode_detail, is_job_id
from taskmq_sql.nodes import insert_allocations
from taskmq_sql.nodes.store import Reserve
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.quotas import admit_placements
from taskmq_sql.postgres.records import dispatched_jobs
from taskmq_sql.postgres.statements.dispatch import FIRST, PLACE, PLACEABLE, WAITING
from taskmq_sql.postgres.transactions import drive

_OVER: Final = "the job expired before it started"


class _NothingPlaced(Exception):
    """Raised when no job can be placed; the transaction rolls back."""


class PostgresPlacements:
    """The `PlacementQueries` of a store in PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names = database.names

    async def waiting(self, picks: Sequence[Pick], behind: Mapping[Lane, tuple[int, str]]) -> list[UnplacedJob]:
        queues = await self._names.find("queue", {pick.lane.queue for pick in picks})
        tenants = await self._names.find("tenant", {pick.lane.tenant for pick in picks})
        known = [pick for pick in picks if pick.lane.queue in queues and pick.lane.tenant in tenants]
        if not known:
            return []
        cursors = [behind.get(pick.lane, FIRST) for pick in known]
        rows = await self._database.dispatches.run(
            "read",
            lambda connection: connection.fetch(
                WAITING,
                [queues[pick.lane.queue] for pick in known],
                [pick.lane.priority for pick in known],
                [tenants[pick.lane.tenant] for pick in known],
                [pick.count for pick in known],
                *map(list, zip(*cursors, strict=True)),
            ),
        )
        tasks = await self._names.texts("task", {row["task"] for row in rows})
        names = {number: name for name, number in tenants.items()}
        return [
            UnplacedJob(
                id=str(row["id"]),
                tenant=names[row["tenant"]],
                queue=known[int(row["place"]) - 1].lane.queue,
                priority=known[int(row["place"]) - 1].lane.priority,
                task=tasks[row["task"]],
                due=row["due"],
                is_first=not row["token"],
                expires=row["expires"],
                needs=None if (detail := decode_detail(row["detail"])) is None else detail.needs,
            )
            for row in rows
        ]

    async def place(
        self, partition: int, epoch: int, reserve: Reserve, over: Sequence[str], quotas: Quotas
    ) -> DispatchBatch | None:
        async def place(connection: Connection) -> tuple[Sequence[Row], dict[str, Placement]]:
            now = int(await connection.fetchval("select taskmq.now_ms()"))
            accepted = {each.job: each for each in await drive(connection, reserve(now)) if is_job_id(each.job)}
            asked = {*accepted, *filter(is_job_id, over)}
            if not asked:
                raise _NothingPlaced
            is_over = {str(row["id"]): row["is_over"] for row in await connection.fetch(PLACEABLE, list(asked))}
            expired = [job for job in is_over if is_over[job]]
            chosen = startable(accepted, is_over.keys() - expired)
            held_back = quotas.held_back()
            if limited := {each.tenant for each in chosen.values() if each.tenant in held_back}:
                tenants = await self._names.find("tenant", limited)
                chosen = await admit_placements(connection, quotas, chosen, tenants)
            placed = [*chosen, *expired]
            rows = await connection.fetch(
                PLACE, placed, partition_key(partition), epoch, partition, _OVER, chances(len(placed))
            )
            found = {str(row["id"]) for row in rows}
            if found - chosen.keys() or any(each.gang and job not in found for job, each in chosen.items()):
                # A concurrent dispatch took one of the jobs; the next attempt sees its result.
                raise _NothingPlaced
            await drive(
                connection,
                insert_allocations(now, [(accepted[str(row["id"])], row["id"], row["token"]) for row in rows]),
            )
            return rows, accepted

        try:
            rows, accepted = await self._database.dispatches.run("transaction", place)
        except _NothingPlaced:
            return None
        if not rows:
            return None
        order = {job: number for number, job in enumerate(accepted)}
        rows = sorted(rows, key=lambda row: order[str(row["id"])])
        nodes = {job: each.node for job, each in accepted.items()}
        jobs = await dispatched_jobs(rows, self._database.dispatches, self._names, nodes)
        return DispatchBatch(rows[0]["batch"], False, jobs, rows[0]["expired"])
