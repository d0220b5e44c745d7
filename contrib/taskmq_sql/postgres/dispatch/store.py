"""Dispatching and the other operations of schedulers on PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskmq.contracts.jobs import (
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    JobRecord,
    Lane,
    LaneHead,
    Pick,
    ReadyJob,
    Released,
    ReturnedJob,
    Withdrawn,
    partition_key,
)
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.reports import Report
from taskmq.model.keys import is_line_key
from taskmq.model.states import UNDERWAY, JobState
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.claims import keep_results
from taskmq_sql.jobs.shared_dispatch import SharedDispatch
from taskmq_sql.jobs.values import chances, is_job_id
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import release
from taskmq_sql.postgres.dispatch.due_jobs import DueJobs
from taskmq_sql.postgres.dispatch.withdrawals import AT_BROKER, fail, tokens_of, undispatch
from taskmq_sql.postgres.notes import Note, note, worker_names
from taskmq_sql.postgres.quotas import count_in_flight, dispatch_within
from taskmq_sql.postgres.records import dispatched_jobs, job_records
from taskmq_sql.postgres.reports import apply
from taskmq_sql.postgres.statements.dependencies import ANY_END
from taskmq_sql.postgres.statements.dispatch import (
    CONFIRM,
    DISPATCH,
    DISPATCH_AGAIN,
    DUE,
    FORGET,
    GATE_OF,
    HEADS,
    IN_FLIGHT,
    LANES,
    LOOK,
    OPEN_GATES,
    PUT_BEHIND,
    TAKE_OVER,
)
from taskmq_sql.postgres.transactions import drive
from taskmq_sql.postgres.upkeep.days import drop_days, make_days
from taskmq_sql.postgres.upkeep.vacuum import Vacuum
from taskmq_sql.retention import forget_old
from taskmq_sql.runs import SqlRuns
from taskmq_sql.schedules import SqlSchedules

KEPT_DAYS: Final = 30
_SHARDS: Final = 64
_OVER: Final = "the job expired before it started"
# Committed with the take-over, before the scheduler acts on it.
_LEAVE_BATCHES: Final = "delete from taskmq.dispatch_batch where id = any($1::bigint[])"


class PostgresDispatch(SharedDispatch):
    """A `DispatchStore` with dedicated connections."""

    def __init__(self, database: Database, schedules: SqlSchedules, runs: SqlRuns) -> None:
        super().__init__(
            database.runner(database.dispatches, database.dispatches),
            database.runner(database.reads, database.accounts),
            leases=database.runner(database.leases, database.leases),
            partition_of=database.partition_of,
        )
        self._database = database
        self._schedules = schedules
        self._runs = runs
        self._names = database.names
        self._due_jobs = DueJobs(database)
        self._vacuum = Vacuum(database.upkeep)

    @property
    def partitions(self) -> int:
        return self._database.partitions

    async def lanes(self, partition: int) -> list[Lane]:
        rows = await self._database.dispatches.run("read", lambda connection: connection.fetch(LANES, partition))
        queues = await self._names.texts("queue", {row[0] for row in rows})
        tenants = await self._names.texts("tenant", {row[2] for row in rows})
        return [Lane(queues[queue], priority, tenants[tenant]) for queue, priority, tenant in rows]

    async def heads(self, queues: Sequence[str]) -> dict[Lane, LaneHead]:
        numbers = await self._names.find("queue", queues)
        rows = await self._database.dispatches.run(
            "read", lambda connection: connection.fetch(HEADS, sorted(numbers.values()))
        )
        names = {number: name for name, number in numbers.items()}
        tenants = await self._names.texts("tenant", {row[2] for row in rows})
        return {
            Lane(names[queue], priority, tenants[tenant]): LaneHead(due, expires)
            for queue, priority, tenant, due, expires in rows
        }

    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        known, lanes = await self._find_lanes(picks)
        if not known:
            return None

        async def dispatch(connection: Connection) -> Sequence[Row]:
            return await connection.fetch(
                DISPATCH,
                *([lane[column] for lane in lanes] for column in range(3)),
                [pick.count for pick in known],
                partition_key(partition),
                epoch,
                partition,
                _OVER,
                chances(sum(pick.count for pick in known)),
            )

        return await self._batch(await self._database.dispatches.run("statement", dispatch), lanes)

    async def dispatch_within(
        self, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
    ) -> DispatchBatch | None:
        known, lanes = await self._find_lanes(picks)
        if not known:
            return None

        async def dispatch(connection: Connection) -> Sequence[Row]:
            return await dispatch_within(
                connection, quotas, known, lanes, partition=partition, epoch=epoch, over=_OVER
            )

        return await self._batch(await self._database.dispatches.run("transaction", dispatch), lanes)

    async def count_in_flight(self, tenant: str) -> dict[str, int]:
        if not (numbers := await self._names.find("tenant", [tenant])):
            return {}
        counts = await self._database.reads.run("read", lambda connection: count_in_flight(connection, numbers))
        return {owner: count for (_, owner), count in counts.items()}

    async def look(self, picks: Sequence[Pick]) -> list[ReadyJob]:
        known, lanes = await self._find_lanes(picks)
        if not known:
            return []
        columns = ([lane[column] for lane in lanes] for column in range(3))
        counts = [pick.count for pick in known]
        rows = await self._database.dispatches.run(
            "read", lambda connection: connection.fetch(LOOK, *columns, counts)
        )
        tasks = await self._names.texts("task", {row["task"] for row in rows})
        return [
            ReadyJob(
                id=str(row["id"]),
                lane=known[int(row["place"]) - 1].lane,
                task=tasks[row["task"]],
                body=row["body"] or b"",
                is_over=row["is_over"],
            )
            for row in rows
        ]

    async def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        known = sorted(filter(is_job_id, gates))
        if known:
            names = [gates[job] for job in known]
            lines = sorted(filter(is_line_key, set(names)))
            await self._database.dispatches.run(
                "statement",
                lambda connection: connection.execute(
                    PUT_BEHIND, known, names, partition_key(partition), epoch, partition, lines
                ),
            )

    async def open_gates(self, partition: int, epoch: int, gates: Mapping[str, int]) -> list[tuple[str, Lane]]:
        if not gates:
            return []
        rows = await self._database.dispatches.run(
            "statement",
            lambda connection: connection.fetch(
                OPEN_GATES, partition_key(partition), epoch, partition, list(gates), list(gates.values())
            ),
        )
        queues = await self._names.texts("queue", {row["queue"] for row in rows})
        tenants = await self._names.texts("tenant", {row["tenant"] for row in rows})
        return [(row["gate"], Lane(queues[row["queue"]], row["priority"], tenants[row["tenant"]])) for row in rows]

    async def gate_of(self, job_id: str) -> str:
        if not is_job_id(job_id):
            return ""
        gate = await self._database.lookups.run("read", lambda connection: connection.fetchval(GATE_OF, job_id))
        return "" if gate is None else str(gate)

    async def _find_lanes(self, picks: Sequence[Pick]) -> tuple[list[Pick], list[tuple[int, int, int]]]:
        """Return the picks whose queue and tenant exist, and their lanes as numbers."""
        queues = await self._names.find("queue", {pick.lane.queue for pick in picks})
        tenants = await self._names.find("tenant", {pick.lane.tenant for pick in picks})
        known = [
            pick for pick in picks if pick.lane.queue in queues and pick.lane.tenant in tenants and pick.count > 0
        ]
        return known, [(queues[pick.lane.queue], pick.lane.priority, tenants[pick.lane.tenant]) for pick in known]

    async def _batch(self, rows: Sequence[Row], lanes: Sequence[tuple[int, int, int]]) -> DispatchBatch | None:
        if not rows:
            return None
        order = {lane: index for index, lane in reversed(list(enumerate(lanes)))}
        rows = sorted(
            rows, key=lambda row: (order[row["queue"], row["priority"], row["tenant"]], row["due"], row["id"].bytes)
        )
        jobs = await dispatched_jobs(rows, self._database.dispatches, self._names)
        self._vacuum.count(len(rows))
        return DispatchBatch(rows[0]["batch"], False, jobs, rows[0]["expired"])

    async def confirm(self, batches: Sequence[int]) -> None:
        await self._for_batches(CONFIRM, batches)

    async def forget(self, batches: Sequence[int]) -> None:
        await self._for_batches(FORGET, batches)
        # Here, because no job waits for this call.
        await self._vacuum.run()

    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        tokens = tokens_of(jobs)
        hold = (partition_key(partition), epoch)
        return await self._database.reports.run(
            "transaction", lambda connection: undispatch(connection, hold, tokens, delay, reason)
        )

    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        tokens = tokens_of(jobs)
        states = UNDERWAY if also_running else AT_BROKER
        hold = (partition_key(partition), epoch)
        return await self._database.reports.run(
            "transaction", lambda connection: fail(connection, hold, tokens, reason, states)
        )

    async def dispatch_again(self, partition: int, epoch: int, jobs: Sequence[ReturnedJob]) -> DispatchBatch | None:
        known = sorted((job for job in jobs if is_job_id(job.id)), key=lambda job: job.id)
        if not known:
            return None
        hold = (partition_key(partition), epoch, partition)
        rows = await self._database.dispatches.run(
            "transaction", lambda connection: _dispatch_again(connection, hold, known)
        )
        if not rows:
            return None
        return DispatchBatch(
            rows[0]["batch"], False, await dispatched_jobs(rows, self._database.dispatches, self._names)
        )

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        async def take_over(connection: Connection) -> Sequence[Row]:
            found = await connection.fetch(TAKE_OVER, partition_key(partition), epoch, partition)
            # A job that was dispatched again is in several batches, and counts in the last one.
            last = {row["id"]: row["batch"] for row in sorted(found, key=lambda row: row["batch"])}
            rows = [row for row in found if row["batch"] == last[row["id"]]]
            under_way = {row["batch"] for row in rows if row["id"] is not None}
            if over := {row["batch"] for row in found} - under_way:
                await connection.execute(_LEAVE_BATCHES, sorted(over))
            return [row for row in rows if row["id"] is not None]

        rows = await self._database.dispatches.run("transaction", take_over)
        batches: dict[int, tuple[bool, list[DispatchedJob]]] = {}
        for row, job in zip(rows, await dispatched_jobs(rows, self._database.dispatches, self._names), strict=True):
            batches.setdefault(row["batch"], (row["confirmed"], []))[1].append(job)
        return [DispatchBatch(number, *found) for number, found in sorted(batches.items())]

    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return await apply(self._database, reports, came_by)

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        shards = [shard for shard in range(_SHARDS) if shard % self.partitions == partition]
        rows = await self._database.dispatches.run(
            "read", lambda connection: connection.fetch(DUE, shards, until, limit)
        )
        return [DueJob(due, str(job_id), shard) for due, job_id, shard in rows]

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        return await self._due_jobs.fire(partition, epoch, [job for job in jobs if is_job_id(job.id)])

    async def release_dependents(self, *, limit: int = 500) -> Released:
        # Nearly always there is nothing to do: that costs one query and no transaction.
        if not await self._database.steps.run("read", lambda connection: connection.fetchval(ANY_END)):
            return Released()
        queues, is_more = await self._database.steps.run("transaction", lambda connection: release(connection, limit))
        names = await self._names.texts("queue", queues)
        return Released(frozenset(names.values()) - {""}, is_more)

    async def in_flight(self, partition: int, *, dispatched_before: int) -> list[JobRecord]:
        rows = await self._database.dispatches.run(
            "read", lambda connection: connection.fetch(IN_FLIGHT, partition, dispatched_before)
        )
        return await job_records(rows, self._names)

    async def maintain(self, *, forgets: bool = True) -> None:
        async def maintain(connection: Connection) -> None:
            await make_days(connection)
            await drive(connection, forget_old())

        await self._database.upkeep.run("statement", maintain)
        if forgets:
            await self.drop_days(KEPT_DAYS)

    async def drop_days(self, keep: int) -> None:
        """Drop the days older than `keep` days, and the schedules' occurrences and the runs of that time."""

        async def drop(connection: Connection) -> int:
            before = int(await connection.fetchval("select taskmq.now_ms()")) - keep * DAY_MS
            await drive(connection, keep_results(keep * DAY_MS))
            await drop_days(connection, before=before)
            return before

        before = await self._database.upkeep.run("statement", drop)
        await self._schedules.drop_occurrences(before=before)
        await self._runs.forget_ended(before=before)

    async def _for_batches(self, statement: str, batches: Sequence[int]) -> None:
        if batches:
            await self._database.steps.run(
                "statement", lambda connection: connection.execute(statement, list(batches))
            )


async def _dispatch_again(
    connection: Connection, hold: tuple[str, int, int], jobs: Sequence[ReturnedJob]
) -> Sequence[Row]:
    rows = await connection.fetch(
        DISPATCH_AGAIN,
        [job.id for job in jobs],
        [job.token for job in jobs],
        [job.crashes for job in jobs],
        *hold,
    )
    returned = {job.id: job for job in jobs}
    interrupted = [(row, job) for row in rows if (job := returned[str(row["id"])]).crashes or row["was_running"]]
    if interrupted:
        names = await worker_names(connection, (row["worker"] for row, _ in interrupted))
        await note(
            connection,
            [
                Note(
                    job.id,
                    row["version"],
                    "interrupted",
                    JobState.DISPATCHED,
                    names.get(row["worker"], ""),
                    job.reason,
                    row["began"],
                )
                for row, job in interrupted
            ],
        )
    return rows
