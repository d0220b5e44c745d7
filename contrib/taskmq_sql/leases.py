"""Leases in the table `lease`, timed by the database's clock.

A token is the time in ms, or the last token plus one if that is greater. So no token is issued twice, even if the
database lost the row or a lagging standby took over.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final, TypeVar

from taskmq.contracts.stores import Lease, members_prefix
from taskmq.errors import StateUnavailable, StoreMismatch, StoreUnavailable
from taskmq_sql.steps import NOW, Row, SqlCalls, Steps, ask, first

T = TypeVar("T")

_ACQUIRE: Final = f"""
insert into taskmq.lease as l (key, epoch, holder, expires, note) values ($1, {NOW}, $2, {NOW} + $3, $4)
on conflict (key) do update
set epoch = case when l.epoch < excluded.epoch then excluded.epoch else l.epoch + 1 end, holder = excluded.holder,
  expires = {NOW} + $3, note = excluded.note
where l.holder is null or l.expires <= {NOW} returning epoch"""
_RENEW: Final = f"""
update taskmq.lease set expires = {NOW} + $3, note = coalesce($4, note)
where key = $1 and epoch = $2 and holder is not null and expires > {NOW} returning epoch"""
_RELEASE: Final = f"update taskmq.lease set holder = null, expires = {NOW} where key = $1 and epoch = $2"
_FOUND: Final = f"""
select holder, epoch, expires - {NOW} as remaining, note, key from taskmq.lease
where holder is not null and expires > {NOW}"""
_FIND: Final = f"{_FOUND} and key = $1"
_MEMBERS: Final = f"{_FOUND} and substr(key, 1, length($1)) = $1"


class SqlLeases(SqlCalls):
    """A `Coordinator` whose tokens are the epochs that dispatches compare.

    Args:
        runner: runs calls that must not wait for lists or bulk operations.
    """

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        return await _ask(self.runner.change(partial(_acquire, key, owner, _ms(seconds), note)))

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        # A power failure that loses the renewal also stops its holder.
        work = partial(ask, _RENEW, key, token, _ms(seconds), note)
        return bool(await _ask(self.runner.change(work, is_lasting=False)))

    async def release(self, key: str, *, token: int) -> None:
        await _ask(self.runner.change(partial(ask, _RELEASE, key, token), is_lasting=False))

    async def find(self, key: str) -> Lease | None:
        row = await _ask(self.runner.read(partial(first, _FIND, key)))
        return None if row is None else _lease(row)

    async def members(self, group: str) -> dict[str, Lease]:
        prefix = members_prefix(group)
        rows = await _ask(self.runner.read(partial(ask, _MEMBERS, prefix)))
        return {row[-1].removeprefix(prefix): _lease(row) for row in sorted(rows, key=lambda row: row[-1])}


async def _ask(call: Awaitable[T]) -> T:
    try:
        return await call
    except StoreUnavailable as error:
        raise StateUnavailable(str(error), is_certain=error.is_certain) from error
    except StoreMismatch as error:
        raise StateUnavailable(str(error)) from error


def _acquire(key: str, owner: str, ms: int, note: str) -> Steps[int | Lease]:
    while True:
        if (row := (yield from first(_ACQUIRE, key, owner, ms, note))) is not None:
            return int(row[0])
        # The other holder may have released the lease meanwhile.
        if (row := (yield from first(_FIND, key))) is not None:
            return _lease(row)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _lease(row: Row) -> Lease:
    holder, epoch, remaining, note, _ = row
    return Lease(owner=holder, token=epoch, left=remaining / 1000, note=note)
