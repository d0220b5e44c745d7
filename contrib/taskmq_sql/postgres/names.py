"""Numbers that stand for names in the tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.postgres.connections import Connection, Connections

Kind = Literal["tenant", "queue", "task", "worker"]
_KINDS: Final[tuple[Kind, ...]] = ("tenant", "queue", "task", "worker")


class Names:
    """Dictionaries of names, cached as they are read: their rows are never changed or deleted.

    Args:
        connections: used to read and insert names, outside any transaction.
        partition_of: returns a queue's partition.
    """

    def __init__(self, connections: Connections, partition_of: Callable[[str], int]) -> None:
        self._connections = connections
        self._partition_of = partition_of
        self._ids: dict[Kind, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._names: dict[Kind, dict[int, str]] = {kind: {} for kind in _KINDS}

    def forget(self) -> None:
        """Clear the cache: a new connection may lead to a restored database."""
        for kind in _KINDS:
            self._ids[kind] = {}
            self._names[kind] = {}

    async def ids(self, kind: Kind, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of the names; new names get one."""
        wanted = set(names)
        # Repeated if a new connection cleared the cache meanwhile.
        while missing := wanted - self._ids[kind].keys():
            known = await self.find(kind, missing)
            if new := sorted(missing - known.keys()):
                await self._make(kind, new)
        known = self._ids[kind]
        return {name: known[name] for name in wanted}

    async def find(self, kind: Kind, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of the names that have one."""
        found = {name: self._ids[kind][name] for name in set(names) if name in self._ids[kind]}
        if missing := [name for name in names if name not in found and can_be_kept(name)]:
            found |= await self._read(
                kind, f"select id, name from taskmq.{kind} where name = any($1::text[])", missing
            )
        return found

    async def find_prefix(self, kind: Kind, prefix: str) -> list[int]:
        """Return the numbers of all names with the prefix."""
        if not can_be_kept(prefix):
            return []
        query = f"select id, name from taskmq.{kind} where starts_with(name, $1)"
        rows = await self._connections.run("read", lambda connection: connection.fetch(query, prefix))
        return [row["id"] for row in rows]

    async def texts(self, kind: Kind, ids: Iterable[int | None]) -> dict[int | None, str]:
        """Return the names of the numbers, with "" for None."""
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
