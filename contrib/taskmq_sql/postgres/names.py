"""The integers that stand for names in the tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.postgres.connections import Connection, Connections

__all__ = ["Kind", "Names"]

Kind = Literal["tenant", "queue", "task", "worker"]
_KINDS: Final[tuple[Kind, ...]] = ("tenant", "queue", "task", "worker")


class Names:
    """The dictionaries, kept as they are met: rows of them are never changed or deleted.

    Args:
        connections: where names are read and made, outside of any transaction.
        partition_of: a queue's partition.
    """

    def __init__(self, connections: Connections, partition_of: Callable[[str], int]) -> None:
        self._connections = connections
        self._partition_of = partition_of
        self._ids: dict[Kind, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._names: dict[Kind, dict[int, str]] = {kind: {} for kind in _KINDS}

    def forget(self) -> None:
        """Ask again: the database behind a new connection may be a restored one."""
        for kind in _KINDS:
            self._ids[kind] = {}
            self._names[kind] = {}

    async def ids(self, kind: Kind, names: Iterable[str]) -> dict[str, int]:
        """Their integers; new names get one."""
        wanted = set(names)
        # Again where a new connection has made us forget what we knew.
        while missing := wanted - self._ids[kind].keys():
            known = await self.find(kind, missing)
            if new := sorted(missing - known.keys()):
                await self._make(kind, new)
        known = self._ids[kind]
        return {name: known[name] for name in wanted}

    async def find(self, kind: Kind, names: Iterable[str]) -> dict[str, int]:
        """The integers of those that have one."""
        found = {name: self._ids[kind][name] for name in set(names) if name in self._ids[kind]}
        if missing := [name for name in names if name not in found and can_be_kept(name)]:
            found |= await self._read(
                kind, f"select id, name from taskmq.{kind} where name = any($1::text[])", missing
            )
        return found

    async def find_prefix(self, kind: Kind, prefix: str) -> list[int]:
        """The integers of all names that begin so."""
        if not can_be_kept(prefix):
            return []
        query = f"select id, name from taskmq.{kind} where starts_with(name, $1)"
        rows = await self._connections.run("read", lambda connection: connection.fetch(query, prefix))
        return [row["id"] for row in rows]

    async def texts(self, kind: Kind, ids: Iterable[int | None]) -> dict[int | None, str]:
        """The names that these integers stand for; that of None is ""."""
        wanted = {one for one in ids if one is not None}
        found: dict[int | None, str] = {one: self._names[kind][one] for one in wanted if one in self._names[kind]}
        if missing := [one for one in wanted if one not in found]:
            query = f"select id, name from taskmq.{kind} where id = any($1::int[])"
            found |= {number: name for name, number in (await self._read(kind, query, missing)).items()}
        found[None] = ""
        return found

    async def _make(self, kind: Kind, names: Sequence[str]) -> None:
        if kind == "queue":
            query = (
                "insert into taskmq.queue (name, partition) select * from unnest($1::text[], $2::smallint[]) "
                "on conflict do nothing"
            )
            args: tuple[object, ...] = (names, [self._partition_of(name) for name in names])
        else:
            query = f"insert into taskmq.{kind} (name) select * from unnest($1::text[]) on conflict do nothing"
            args = (names,)

        async def make(connection: Connection) -> str:
            return await connection.execute(query, *args)

        await self._connections.run("statement", make)

    async def _read(self, kind: Kind, query: str, wanted: Sequence[object]) -> dict[str, int]:
        rows = await self._connections.run("read", lambda connection: connection.fetch(query, wanted))
        for row in rows:
            self._ids[kind][row["name"]] = row["id"]
            self._names[kind][row["id"]] = row["name"]
        return {row["name"]: row["id"] for row in rows}
