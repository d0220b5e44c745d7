"""The audit in tables: entries, and the hash chain in a table next to them."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

from taskmq.contracts.identity import AuditFilter, AuditPage
from taskmq.model.identity import AuditEntry, AuditRecord, ChainLink, Scope, seal_records, to_record
from taskmq_sql.identity.rows import AUDIT_COLUMNS, audit_record
from taskmq_sql.steps import LOCK, Row, SqlCalls, Steps, ask, clock, first, placeholders, read_call, write_call

AUDITED_COLUMNS: Final = (
    "action, kind, subject, tenant, user_id, via, credential, request_id, "
    "who, who_salt, who_commitment, what, what_salt, what_commitment"
)
"""Columns of an entry except its number and time."""
_ADD: Final = f"insert into taskmq.audit (at, {AUDITED_COLUMNS}) values ({placeholders(15)})"
_FROM: Final = "from taskmq.audit a left join taskmq.audit_seal s on s.number = a.number"
_HEAD: Final = "select position, hash from taskmq.audit_seal order by position desc limit 1"
# Transactions may become visible in another order than their numbers. None stays open longer than this.
_LONGEST_TRANSACTION_MS: Final = 600_000
_SEALED_UNTIL: Final = """
select a.at from taskmq.audit_seal s join taskmq.audit a on a.number = s.number order by s.position desc limit 1"""
_UNSEALED: Final = f"select {AUDIT_COLUMNS} {_FROM} where a.at >= $1 and s.number is null order by a.number limit $2"
_SEAL: Final = "insert into taskmq.audit_seal (position, number, hash) values ($1, $2, $3)"
_CHAIN: Final = f"""
select {AUDIT_COLUMNS} from taskmq.audit_seal s join taskmq.audit a on a.number = s.number
where s.position > $1 order by s.position limit $2"""


class SqlAudit(SqlCalls):
    """An `AuditStore` in the database's tables."""

    @write_call
    def add(self, entries: Sequence[AuditEntry]) -> Steps[None]:
        return note(entries)

    @read_call
    def entries(
        self, scope: Scope, which: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> Steps[AuditPage]:
        if scope.tenants is not None and not scope.tenants:
            return AuditPage([], None)
        args: list[object] = []
        conditions: list[str] = []

        def demand(condition: str, *values: object) -> None:
            conditions.append(condition.format(placeholders(len(values), begin=len(args) + 1)))
            args.extend(values)

        if scope.tenants is not None:
            demand("a.tenant in ({})", *sorted(scope.tenants))
        if which.action:
            demand(f"substr(a.action, 1, {len(which.action)}) = {{}}", which.action)
        for column, value in (("user_id", which.user_id), ("kind", which.kind), ("subject", which.subject)):
            if value:
                demand(f"a.{column} = {{}}", value)
        for condition, instant in (("a.at >= {}", which.since), ("a.at < {}", which.until), ("a.number < {}", after)):
            if instant is not None:
                demand(condition, instant)
        where = f"where {' and '.join(conditions)}" if conditions else ""
        rows = yield from ask(
            f"select {AUDIT_COLUMNS} {_FROM} {where} order by a.number desc limit ${len(args) + 1}", *args, limit + 1
        )
        found = [audit_record(row) for row in rows[:limit]]
        return AuditPage(found, found[-1].number if len(rows) > limit else None)

    async def seal(self, *, limit: int = 500) -> int:
        if not await self.runner.read(partial(_find_unsealed, limit=1)):
            return 0
        return await self.runner.write(partial(_seal, limit=limit))

    @read_call
    def head(self) -> Steps[ChainLink]:
        return _head()

    @read_call
    def chain(self, *, after: int = 0, limit: int = 500) -> Steps[list[AuditRecord]]:
        return [audit_record(row) for row in (yield from ask(_CHAIN, after, limit))]

    @read_call
    def count_unsealed(self) -> Steps[int]:
        row = yield from first(f"select count(*) {_FROM} where s.number is null")
        assert row is not None
        return int(row[0])


def note(entries: Sequence[AuditEntry]) -> Steps[None]:
    """Write audit entries in the transaction of the changes that they describe."""
    now = (yield from clock()) if entries else 0
    for entry in entries:
        yield from ask(_ADD, now, *audit_values(entry))


def audit_values(entry: AuditEntry) -> tuple[object, ...]:
    """Return the values of `AUDITED_COLUMNS`."""
    # The store sets number and time; the commitments do not include them.
    record = to_record(entry, number=0, at=0, who_salt=secrets.token_bytes(16), what_salt=secrets.token_bytes(16))
    return tuple(getattr(record, name) for name in AUDITED_COLUMNS.split(", "))


def _find_unsealed(*, limit: int) -> Steps[Sequence[Row]]:
    now = yield from clock()
    row = yield from first(_SEALED_UNTIL)
    # The clock, and with it the last entry, may have been ahead for a while.
    since = 0 if row is None else min(row[0], now) - _LONGEST_TRANSACTION_MS
    return (yield from ask(_UNSEALED, since, limit))


def _seal(*, limit: int) -> Steps[int]:
    yield LOCK
    head = yield from _head()
    records = [audit_record(row) for row in (yield from _find_unsealed(limit=limit))]
    for record, each in zip(records, seal_records(head, records), strict=True):
        yield from ask(_SEAL, each.position, record.number, each.hash)
    return len(records)


def _head() -> Steps[ChainLink]:
    row = yield from first(_HEAD)
    return ChainLink() if row is None else ChainLink(row[0], bytes(row[1]))
