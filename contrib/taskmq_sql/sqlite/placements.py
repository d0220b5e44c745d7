"""Jobs placed on nodes, in an SQLite file."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from taskmq.contracts.jobs import DispatchBatch, Lane, Pick, UnplacedJob
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.nodes import startable
from taskmq.model.states import JobState
from taskmq_embedded.work import Care
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.values import decode_detail
from taskmq_sql.nodes import insert_allocations
from taskmq_sql.nodes.store import Reserve
from taskmq_sql.sqlite.file.thread import FileThread
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.dispatches import dispatch_named, holds
from taskmq_sql.sqlite.quota_dispatch import admit_placements
from taskmq_sql.sqlite.runner import drive

_WAITING: Final = """
    SELECT r.id, r.due, j.task, j.token, j.expires, j.detail FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? AND (r.due, r.id) > (?, ?) ORDER BY r.due, r.id LIMIT ?
"""
_READY: Final = "SELECT coalesce(expires <= ?, 0) FROM job WHERE id = ? AND state = ?"
_QUEUED: Final = CODES[JobState.QUEUED]


class SqlitePlacements:
    """The `PlacementQueries` of a store in an SQLite file."""

    def __init__(self, writer: FileThread, reader: FileThread) -> None:
        self._writer = writer
        self._reader = reader

    async def waiting(self, picks: Sequence[Pick], behind: Mapping[Lane, tuple[int, str]]) -> list[UnplacedJob]:
        return await self._reader.call(partial(_waiting, picks=picks, behind=behind), care=Care.READ)

    async def place(
        self, partition: int, epoch: int, reserve: Reserve, over: Sequence[str], quotas: Quotas
    ) -> DispatchBatch | None:
        work = partial(_place, partition=partition, epoch=epoch, reserve=reserve, over=over, quotas=quotas)
        return await self._writer.call(work, care=Care.DURABLE)


def _waiting(
    transaction: Transaction, picks: Sequence[Pick], behind: Mapping[Lane, tuple[int, str]]
) -> list[UnplacedJob]:
    connection, names = transaction.connection, transaction.names
    found: list[UnplacedJob] = []
    for pick in picks:
        queue, tenant = names.find(connection, pick.lane.queue), names.find(connection, pick.lane.tenant)
        due, job = behind.get(pick.lane, (-1, ""))
        place = (due, id_bytes(job) or b"")
        rows = connection.execute(_WAITING, (queue, pick.lane.priority, tenant, *place, pick.count)).fetchall()
        found += [_waiting_job(transaction, pick.lane, row) for row in rows]
    return found


def _waiting_job(transaction: Transaction, lane: Lane, row: Sequence[Any]) -> UnplacedJob:
    job, due, task, token, expires, text = row
    detail = decode_detail(text)
    return UnplacedJob(
        id=id_text(job),
        tenant=lane.tenant,
        queue=lane.queue,
        priority=lane.priority,
        task=transaction.names.name(transaction.connection, task),
        due=due,
        is_first=not token,
        expires=expires,
        needs=None if detail is None else detail.needs,
    )


def _place(
    transaction: Transaction, partition: int, epoch: int, reserve: Reserve, over: Sequence[str], *, quotas: Quotas
) -> DispatchBatch | None:
    if not holds(transaction, partition, epoch):
        return None
    accepted = {
        job: each for each in drive(transaction, reserve(transaction.now)) if (job := id_bytes(each.job)) is not None
    }
    is_over = {
        job: bool(row[0])
        for job in {*accepted, *filter(None, map(id_bytes, over))}
        if (row := transaction.connection.execute(_READY, (transaction.now, job, _QUEUED)).fetchone()) is not None
    }
    expired = [job for job in is_over if is_over[job]]
    chosen = startable(accepted, is_over.keys() - expired)
    held_back = quotas.held_back()
    if any(each.tenant in held_back for each in chosen.values()):
        chosen = admit_placements(transaction, quotas, chosen)
    nodes = {job: each.node for job, each in chosen.items()}
    batch = dispatch_named(transaction, partition, epoch, {**nodes, **dict.fromkeys(expired, "")})
    if batch is not None:
        tokens = [(id_bytes(job.id), job.token) for job in batch.jobs]
        drive(
            transaction,
            insert_allocations(
                transaction.now, [(chosen[job], job, token) for job, token in tokens if job is not None]
            ),
        )
    return batch
