"""Definitions and their versions; the row of `definition` is locked during a change."""

from typing import Final

from taskmq.contracts.jobs import DefinitionPage, PutDefinition
from taskmq.model.jobs.definitions import Definition, DefinitionContent, decode_content, encode_content
from taskmq.model.units import storable
from taskmq_sql.jobs.values import LAST_CHARACTER, can_be_kept
from taskmq_sql.postgres.connections import Connection, Row, undone
from taskmq_sql.postgres.database import Database

__all__ = ["PostgresDefinitions"]

_ENSURE: Final = """
insert into taskmq.definition (tenant, name, version, is_deleted) values ($1, $2, 0, true) on conflict do nothing"""
_LOCK: Final = "select version, is_deleted from taskmq.definition where tenant = $1 and name = $2 for update"
_ADD: Final = """
insert into taskmq.definition_version (tenant, name, version, at, actor, content)
values ($1, $2, $3, taskmq.now_ms(), $4, $5) returning name, version, at, actor, content"""
_SET: Final = """
update taskmq.definition set version = $3, is_deleted = false where tenant = $1 and name = $2"""
_ONE: Final = """
select name, version, at, actor, content from taskmq.definition_version
where tenant = $1 and name = $2 and version = $3"""
_LAST: Final = """
select v.name, v.version, v.at, v.actor, v.content from taskmq.definition d
join taskmq.definition_version v using (tenant, name, version)
where d.tenant = $1 and d.name = $2 and not d.is_deleted"""
_PAGE: Final = """
select v.name, v.version, v.at, v.actor, v.content from taskmq.definition d
join taskmq.definition_version v using (tenant, name, version)
where d.tenant = $1 and not d.is_deleted and d.name >= $2 and d.name < $3 and ($4::text is null or d.name > $4)
order by d.name limit $5"""
_VERSIONS: Final = """
select name, version, at, actor, content from taskmq.definition_version
where tenant = $1 and name = $2 and ($3::int is null or version < $3) order by version desc limit $4"""
_DELETE: Final = """
update taskmq.definition set is_deleted = true
where tenant = $1 and name = $2 and not is_deleted and ($3::int is null or version = $3) returning name"""


class PostgresDefinitions:
    """A `DefinitionStore` in PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        number = (await self._database.names.ids("tenant", [tenant]))[tenant]
        text = encode_content(content).decode()

        async def put(connection: Connection) -> PutDefinition | None:
            await connection.execute(_ENSURE, number, name)
            row = await connection.fetchrow(_LOCK, number, name)
            assert row is not None
            present = 0 if row["is_deleted"] else int(row["version"])
            if version is not None and version != present:
                raise undone(None)
            if present:
                last = await connection.fetchrow(_ONE, number, name, present)
                assert last is not None
                if last["content"] == text:
                    return PutDefinition(_definition(tenant, last), False)
            made = await connection.fetchrow(_ADD, number, name, row["version"] + 1, storable(by), text)
            assert made is not None
            await connection.execute(_SET, number, name, made["version"])
            return PutDefinition(_definition(tenant, made), True)

        return await self._database.changes.run("transaction", put)

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        rows = (
            await self._read(tenant, name, _LAST, name) if version is None else await self._one(tenant, name, version)
        )
        return _definition(tenant, rows[0]) if rows else None

    async def page(
        self, tenant: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        rows = await self._read(tenant, prefix, _PAGE, prefix, prefix + LAST_CHARACTER, after, limit + 1)
        found = [_definition(tenant, row) for row in rows[:limit]]
        return DefinitionPage(found, found[-1].name if len(rows) > limit else None)

    async def versions(
        self, tenant: str, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[Definition]:
        rows = await self._read(tenant, name, _VERSIONS, name, before, limit)
        return [_definition(tenant, row) for row in rows]

    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:
        number = await self._number(tenant)
        if number is None or not can_be_kept(name):
            return False
        found = await self._database.changes.run(
            "statement", lambda connection: connection.fetchval(_DELETE, number, name, version)
        )
        return found is not None

    async def _one(self, tenant: str, name: str, version: int) -> list[Row]:
        return await self._read(tenant, name, _ONE, name, version)

    async def _read(self, tenant: str, name: str, query: str, *args: object) -> list[Row]:
        number = await self._number(tenant)
        if number is None or not can_be_kept(name):
            return []
        rows = await self._database.reads.run("read", lambda connection: connection.fetch(query, number, *args))
        return list(rows)

    async def _number(self, tenant: str) -> int | None:
        return (await self._database.names.find("tenant", [tenant])).get(tenant)


def _definition(tenant: str, row: Row) -> Definition:
    return Definition(
        tenant=tenant,
        name=row["name"],
        version=row["version"],
        at=row["at"],
        by=row["actor"],
        content=decode_content(row["content"]),
    )
