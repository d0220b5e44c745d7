"""Host nodes in the table `node`: reports, draining, loss. Their workers are in the table `worker_status`."""

import os
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.model.envelope import new_job_id
from taskmq.model.nodes import HostNode, NodeTold
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import storable
from taskmq_sql.nodes.allocations import CLOSE, close_all, usage_by_node
from taskmq_sql.steps import Row, Steps, ask, clock, first, insert

_COLUMNS: Final = "name, id, told, heartbeat, registered, epoch, is_busy, is_draining, is_lost"
# The first epoch is the time, so a node that was removed and returns has a new one.
_TELL: Final = """
insert into taskmq.node (name, id, told, lost_after, heartbeat, registered, epoch, is_busy, is_draining, is_lost)
values ($1, $2, $3, $4, $5, $5, $5, 0, 0, 0)
on conflict (name) do update
set told = excluded.told, lost_after = excluded.lost_after, heartbeat = excluded.heartbeat, is_lost = 0"""
_ALL: Final = f"select {_COLUMNS} from taskmq.node order by name"
_DRAIN: Final = "update taskmq.node set is_draining = $2 where name = $1"
_BUSY: Final = "update taskmq.node set is_busy = $2, heartbeat = $3, is_lost = 0 where name = $1"
_REMOVE: Final = "delete from taskmq.node where name = $1 returning name"
_EXPIRE: Final = """
update taskmq.node set is_lost = 1, epoch = epoch + 1
where is_lost = 0 and lost_after is not null and heartbeat + lost_after <= $1 returning name"""
_FORGET: Final = "delete from taskmq.allocation where ended < $1"
_KEPT_MS: Final = 30 * 86_400_000
_REPORT_WORKERS: Final = """
insert into taskmq.worker_status (name, host, pid, heard, status) @rows(text, text, bigint, bigint, text)
on conflict (name, host, pid) do update set heard = excluded.heard, status = excluded.status"""
_FORGET_WORKER: Final = "delete from taskmq.worker_status where name = $1 and host = $2 and pid = $3"
_WORKERS: Final = "select heard, status from taskmq.worker_status order by name, host, pid"
_FORGET_SILENT: Final = "delete from taskmq.worker_status where heard < $1"
_SILENT_MS: Final = 600_000

_told: Final = msgspec.json.Decoder(NodeTold)
_status: Final = msgspec.json.Decoder(WorkerStatus)


def report(told: Sequence[NodeTold]) -> Steps[None]:
    now = yield from clock()
    for one in sorted({one.name: one for one in told}.values(), key=lambda one: one.name):
        node_id = new_job_id(now, os.urandom(10))
        yield from ask(_TELL, one.name, node_id, msgspec.json.encode(one).decode(), one.lost_after, now)


def nodes(now: int) -> Steps[list[HostNode]]:
    rows = yield from ask(_ALL)
    taken = (yield from usage_by_node(now)) if rows else {}
    return [_node(row, taken.get(row[0], {})) for row in rows]


def drain(name: str, *, drains: bool) -> Steps[HostNode | None]:
    now = yield from clock()
    yield from ask(_DRAIN, name, int(drains))
    return (yield from _find(now, name))


def set_busy(name: str, *, is_busy: bool) -> Steps[HostNode | None]:
    now = yield from clock()
    yield from ask(_BUSY, name, int(is_busy), now)
    return (yield from _find(now, name))


def remove(name: str) -> Steps[bool]:
    now = yield from clock()
    if (yield from first(_REMOVE, name)) is None:
        return False
    yield from ask(CLOSE, now, name)
    return True


def expire() -> Steps[list[str]]:
    now = yield from clock()
    lost = sorted(row[0] for row in (yield from ask(_EXPIRE, now)))
    for name in lost:
        yield from ask(CLOSE, now, name)
    yield from close_all(now)
    yield from ask(_FORGET, now - _KEPT_MS)
    yield from ask(_FORGET_SILENT, now - _SILENT_MS)
    return lost


def report_workers(statuses: Sequence[WorkerStatus]) -> Steps[None]:
    now = yield from clock()
    # Concurrent schedulers lock the rows in one order.
    rows = {_key_of(one): msgspec.json.encode(one).decode() for one in statuses}
    yield from insert(_REPORT_WORKERS, [(*key, now, text) for key, text in sorted(rows.items())])


def forget_workers(statuses: Sequence[WorkerStatus]) -> Steps[None]:
    for key in sorted({_key_of(one) for one in statuses}):
        yield from ask(_FORGET_WORKER, *key)


def workers() -> Steps[list[WorkerStatus]]:
    return [replace(_status.decode(text), at=heard) for heard, text in (yield from ask(_WORKERS))]


def _key_of(status: WorkerStatus) -> tuple[str, str, int]:
    return storable(status.name), storable(status.host), status.pid


def _find(now: int, name: str) -> Steps[HostNode | None]:
    row = yield from first(f"select {_COLUMNS} from taskmq.node where name = $1", name)
    if row is None:
        return None
    taken = yield from usage_by_node(now)
    return _node(row, taken.get(name, {}))


def _node(row: Row, taken: dict[str, float]) -> HostNode:
    _, node_id, told, heartbeat, registered, epoch, is_busy, is_draining, is_lost = row
    return HostNode(
        id=node_id,
        told=_told.decode(told),
        used=taken,
        epoch=epoch,
        registered=registered,
        heartbeat=heartbeat,
        is_busy=bool(is_busy),
        is_draining=bool(is_draining),
        is_lost=bool(is_lost),
    )
