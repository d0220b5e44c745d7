"""Leases in the table `lease`, by the database's clock.

A token is the time, in ms, or one more than the one before it where that is later: so also what the database has
forgotten, with the row or as a standby that takes over late, is not given twice.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from taskmq.contracts.stores import Lease, members_prefix
from taskmq.errors import StateUnavailable, StoreUnavailable
from taskmq_sql.postgres.connections import Connection, Connections, Row

__all__ = ["DROP_ENDED", "PostgresLeases"]

T = TypeVar("T")

# Not the statement's begin: one that has waited for a row sees the time at which it got it.
_NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
_ACQUIRE: Final = f"""
insert into taskmq.lease as l (key, epoch, holder, expires, note) values ($1, {_NOW}, $2, {_NOW} + $3, $4)
on conflict (key) do update
set epoch = greatest(l.epoch + 1, excluded.epoch), holder = excluded.holder, expires = {_NOW} + $3,
  note = excluded.note
where l.holder is null or l.expires <= {_NOW} returning epoch"""
_RENEW: Final = f"""
update taskmq.lease set expires = {_NOW} + $3, note = coalesce($4, note)
where key = $1 and epoch = $2 and holder is not null and expires > {_NOW} returning true"""
_RELEASE: Final = f"update taskmq.lease set holder = null, expires = {_NOW} where key = $1 and epoch = $2"
_FIND: Final = f"""
select holder, epoch, expires - {_NOW} as left, note from taskmq.lease
where key = $1 and holder is not null and expires > {_NOW}"""
_MEMBERS: Final = f"""
select holder, epoch, expires - {_NOW} as left, note, key from taskmq.lease
where starts_with(key, $1) and holder is not null and expires > {_NOW} order by key collate "C"
"""
DROP_ENDED: Final = f"""
delete from taskmq.lease where not starts_with(key, 'partition:') and expires <= {_NOW} - 3600000"""
"""Forgets the keys whose leases have ended an hour ago. Partitions stay: their epochs are compared for ever."""


class PostgresLeases:
    """A `Coordinator`: its tokens are the epochs that the dispatching statements compare."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        async def acquire(connection: Connection) -> int | Lease:
            while True:
                epoch = await connection.fetchval(_ACQUIRE, key, owner, _ms(seconds), note)
                if epoch is not None:
                    return int(epoch)
                if (row := await connection.fetchrow(_FIND, key)) is not None:
                    return _lease(row)

        return await self._run(acquire)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        async def renew(connection: Connection) -> bool:
            return await connection.fetchval(_RENEW, key, token, _ms(seconds), note) is not None

        return await self._run(renew)

    async def release(self, key: str, *, token: int) -> None:
        async def release(connection: Connection) -> None:
            await connection.execute(_RELEASE, key, token)

        await self._run(release)

    async def find(self, key: str) -> Lease | None:
        async def find(connection: Connection) -> Lease | None:
            row = await connection.fetchrow(_FIND, key)
            return None if row is None else _lease(row)

        return await self._run(find)

    async def members(self, group: str) -> dict[str, Lease]:
        prefix = members_prefix(group)

        async def read(connection: Connection) -> dict[str, Lease]:
            return {row["key"].removeprefix(prefix): _lease(row) for row in await connection.fetch(_MEMBERS, prefix)}

        return await self._run(read)

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            return await self._connections.run("statement", work)
        except StoreUnavailable as error:
            raise StateUnavailable(str(error), is_certain=error.is_certain) from error


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _lease(row: Row) -> Lease:
    return Lease(owner=row["holder"], token=row["epoch"], left=row["left"] / 1000, note=row["note"])
