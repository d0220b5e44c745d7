"""Bulk operations in the table `bulk`: one row each, with JSON content."""

from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.bulks import Bulk
from taskmq_sql.identity import note
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import Row, SqlCalls, Steps, ask, first, read_call, write_call

_BULK: Final = "select content, version from taskmq.bulk"
_ADD: Final = """
insert into taskmq.bulk (id, tenant, due, ended, version, content, key) values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing returning id"""
_WRITE: Final = """
update taskmq.bulk set due = $3, ended = $4, version = version + 1, content = $5
where id = $1 and version = $2 returning id"""


class SqlBulks(SqlCalls):
    """A `BulkStore` in the database's tables."""

    @write_call
    def add(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Steps[Bulk]:
        row = (bulk.id, bulk.tenant, bulk.due, bulk.ended, 1, _text(bulk), bulk.unique_key)
        while (yield from first(_ADD, *row)) is None:
            known = yield from first(f"{_BULK} where id = $1 or key = $2", bulk.id, bulk.unique_key)
            # It may have been deleted since the insert.
            if known is not None:
                return _bulk(known)
        if audit is not None:
            yield from note([audit])
        return replace(bulk, version=1)

    @read_call
    def get(self, bulk_id: str) -> Steps[Bulk | None]:
        row = (yield from first(f"{_BULK} where id = $1", bulk_id)) if can_be_kept(bulk_id) else None
        return None if row is None else _bulk(row)

    @read_call
    def page(self, tenant: str | None, *, after: str | None = None, limit: int = 50) -> Steps[list[Bulk]]:
        if not can_be_kept(tenant or "", after or ""):
            return []
        # Greater than every id.
        last = "~" if after is None else after
        if tenant is None:
            rows = yield from ask(f"{_BULK} where id < $1 order by id desc limit $2", last, limit)
        else:
            newest = f"{_BULK} where tenant = $1 and id < $2 order by id desc limit $3"
            rows = yield from ask(newest, tenant, last, limit)
        return [_bulk(row) for row in rows]

    @read_call
    def open(self, *, limit: int = 50) -> Steps[list[Bulk]]:
        return [
            _bulk(row) for row in (yield from ask(f"{_BULK} where ended is null order by due, id limit $1", limit))
        ]

    @write_call
    def write(self, bulk: Bulk, *, audit: AuditEntry | None = None) -> Steps[Bulk | None]:
        found = yield from first(_WRITE, bulk.id, bulk.version, bulk.due, bulk.ended, _text(bulk))
        if found is None:
            return None
        if audit is not None:
            yield from note([audit])
        return replace(bulk, version=bulk.version + 1)

    @write_call
    def forget(self, *, before: int) -> Steps[None]:
        yield from ask("delete from taskmq.bulk where ended < $1", before)


def _bulk(row: Row) -> Bulk:
    content, version = row
    return replace(msgspec.json.decode(content, type=Bulk), version=version)


def _text(bulk: Bulk) -> str:
    return msgspec.json.encode(bulk).decode()
