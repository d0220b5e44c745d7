"""Definitions and their versions."""

from functools import partial
from typing import Any, Final

from taskmq.contracts.jobs import DefinitionPage, PutDefinition
from taskmq.model.jobs.definitions import Definition, DefinitionContent, decode_content, encode_content
from taskmq.model.units import storable
from taskmq_sql.jobs.values import LAST_CHARACTER, can_be_kept
from taskmq_sql.sqlite.file.connection import Care, Transaction
from taskmq_sql.sqlite.file.thread import FileThread

__all__ = ["SqliteDefinitions"]

_PRESENT: Final = "SELECT version, is_deleted FROM definition WHERE tenant = ? AND name = ?"
_ADD: Final = "INSERT INTO definition_version (tenant, name, version, at, by, content) VALUES (?, ?, ?, ?, ?, ?)"
_SET: Final = "INSERT OR REPLACE INTO definition (tenant, name, version, is_deleted) VALUES (?, ?, ?, 0)"
_ONE: Final = """
SELECT name, version, at, by, content FROM definition_version WHERE tenant = ? AND name = ? AND version = ?"""
_LAST: Final = """
SELECT v.name, v.version, v.at, v.by, v.content
FROM definition d JOIN definition_version v USING (tenant, name, version)
WHERE d.tenant = ? AND d.name = ? AND NOT d.is_deleted"""
_PAGE: Final = """
SELECT v.name, v.version, v.at, v.by, v.content
FROM definition d JOIN definition_version v USING (tenant, name, version)
WHERE d.tenant = ? AND NOT d.is_deleted AND d.name >= ? AND d.name < ? AND d.name > ? ORDER BY d.name LIMIT ?"""
_VERSIONS: Final = """
SELECT name, version, at, by, content FROM definition_version
WHERE tenant = ? AND name = ? AND version < ? ORDER BY version DESC LIMIT ?"""
_DELETE: Final = """
UPDATE definition SET is_deleted = 1
WHERE tenant = ? AND name = ? AND NOT is_deleted AND version = ifnull(?, version) RETURNING name"""
_BEYOND: Final = 2**62


class SqliteDefinitions:
    """A `DefinitionStore` in an SQLite file."""

    def __init__(self, writer: FileThread, reader: FileThread) -> None:
        self._writer = writer
        self._reader = reader

    async def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        text = encode_content(content).decode()
        work = partial(_put, tenant=tenant, name=name, text=text, version=version, by=storable(by))
        return await self._writer.call(work, care=Care.DURABLE)

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        args = (name,) if version is None else (name, version)
        found = await self._read(tenant, name, _LAST if version is None else _ONE, *args)
        return found[0] if found else None

    async def page(
        self, tenant: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        found = await self._read(tenant, prefix, _PAGE, prefix, prefix + LAST_CHARACTER, after or "", limit + 1)
        return DefinitionPage(found[:limit], found[limit - 1].name if len(found) > limit else None)

    async def versions(
        self, tenant: str, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[Definition]:
        return await self._read(tenant, name, _VERSIONS, name, _BEYOND if before is None else before, limit)

    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:
        if not can_be_kept(tenant, name):
            return False
        work = partial(_delete, tenant=tenant, name=name, version=version)
        return await self._writer.call(work, care=Care.DURABLE)

    async def _read(self, tenant: str, name: str, query: str, *args: object) -> list[Definition]:
        if not can_be_kept(tenant, name):
            return []
        return await self._reader.call(partial(_find, tenant=tenant, query=query, args=args), care=Care.READ)


def _put(
    transaction: Transaction, *, tenant: str, name: str, text: str, version: int | None, by: str
) -> PutDefinition | None:
    connection = transaction.connection
    number = transaction.names.id(connection, tenant)
    row = connection.execute(_PRESENT, (number, name)).fetchone()
    last, is_deleted = (0, 1) if row is None else row
    present = 0 if is_deleted else last
    if version is not None and version != present:
        return None
    if present:
        found = connection.execute(_ONE, (number, name, present)).fetchone()
        if found[-1] == text:
            return PutDefinition(_definition(tenant, found), False)
    made = (name, last + 1, transaction.now, by, text)
    connection.execute(_ADD, (number, *made))
    connection.execute(_SET, (number, name, last + 1))
    return PutDefinition(_definition(tenant, made), True)


def _find(transaction: Transaction, *, tenant: str, query: str, args: tuple[object, ...]) -> list[Definition]:
    if (number := transaction.names.find(transaction.connection, tenant)) is None:
        return []
    rows = transaction.connection.execute(query, (number, *args)).fetchall()
    return [_definition(tenant, row) for row in rows]


def _delete(transaction: Transaction, *, tenant: str, name: str, version: int | None) -> bool:
    if (number := transaction.names.find(transaction.connection, tenant)) is None:
        return False
    return bool(transaction.connection.execute(_DELETE, (number, name, version)).fetchall())


def _definition(tenant: str, row: tuple[Any, ...]) -> Definition:
    name, version, at, by, content = row
    return Definition(tenant=tenant, name=name, version=version, at=at, by=by, content=decode_content(content))
