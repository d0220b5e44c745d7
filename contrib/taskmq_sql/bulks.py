"""Bulk operations in the table `bulk`: one row each, with JSON content."""

from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk
from taskmq_sql.identity import note
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import Row, SqlCalls, Steps, ask, first

_BULK: Final = "select content, version from taskmq.bulk"
_ADD: Final = """
insert into taskmq.bulk (id, tenant, due, ended, version, content, key) values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing returning id"""
_WRITE: Final = """
update taskmq.bulk set due = $3, ended = $4, version = version + 1, content = $5
where id = $1 and version = $2 returning id"""


class SqlBulks(SqlCalls):
    """A `BulkStore` in the database's tables."""

    async def add(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk:
        return await self._runner.write(partial(_add, bulk=bulk, audit=audit))

    async def get(self, bulk_id: str) -> Bulk | None:
        return await self._runner.read(partial(_get, bulk_id=bulk_id)) if can_be_kept(bulk_id) else None

    async def page(self, tenant: str | None, *, after: str | None = None, limit: int = 50) -> list[Bulk]:
        if not can_be_kept(tenant or "", after or ""):
            return []
        return await self._runner.read(partial(_page, tenant=tenant, after=after, limit=limit))

    async def open(self, *, limit: int = 50) -> list[Bulk]:
        return await self._runner.read(partial(_open, limit=limit))

    async def write(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Bulk | None:
        return await self._runner.write(partial(_write, bulk=bulk, audit=audit))

    async def forget(self, *, before: int) -> None:
        await self._runner.write(partial(_forget, before=before))


def _add(*, bulk: Bulk, audit: AuditEntry | None) -> Steps[Bulk]:
    row = (bulk.id, bulk.tenant, bulk.due, bulk.ended, 1, _text(bulk), bulk.unique_key)
    while (yield from first(_ADD, *row)) is None:
        known = yield from first(f"{_BULK} where id = $1 or key = $2", bulk.id, bulk.unique_key)
        # It may have been deleted since the insert.
        if known is not None:
            return _bulk(known)
    if audit is not None:
        yield from note([audit])
    return replace(bulk, version=1)


def _get(*, bulk_id: str) -> Steps[Bulk | None]:
    row = yield from first(f"{_BULK} where id = $1", bulk_id)
    return None if row is None else _bulk(row)


def _page(*, tenant: str | None, after: str | None, limit: int) -> Steps[list[Bulk]]:
    # Greater than every id.
    last = "~" if after is None else after
    if tenant is None:
        rows = yield from ask(f"{_BULK} where id < $1 order by id desc limit $2", last, limit)
    else:
        rows = yield from ask(f"{_BULK} where tenant = $1 and id < $2 order by id desc limit $3", tenant, last, limit)
    return [_bulk(row) for row in rows]


def _open(*, limit: int) -> Steps[list[Bulk]]:
    return [_bulk(row) for row in (yield from ask(f"{_BULK} where ended is null order by due, id limit $1", limit))]


def _write(*, bulk: Bulk, audit: AuditEntry | None) -> Steps[Bulk | None]:
    found = yield from first(_WRITE, bulk.id, bulk.version, bulk.due, bulk.ended, _text(bulk))
    if found is None:
        return None
    if audit is not None:
        yield from note([audit])
    return replace(bulk, version=bulk.version + 1)


def _forget(*, before: int) -> Steps[None]:
    yield from ask("delete from taskmq.bulk where ended < $1", before)


def _bulk(row: Row) -> Bulk:
    content, version = row
    return replace(msgspec.json.decode(content, type=Bulk), version=version)


def _text(bulk: Bulk) -> str:
    return msgspec.json.encode(bulk).decode()
