"""Definitions and their versions. A change writes the row of `definition` first, which serializes changes."""

from typing import Final

from taskmq.contracts.jobs import DefinitionPage, PutDefinition
from taskmq.model.jobs.definitions import Definition, DefinitionContent, decode_content, encode_content
from taskmq_sql.jobs.values import LAST_CHARACTER, can_be_kept
from taskmq_sql.steps import (
    Row,
    SqlCalls,
    Steps,
    ask,
    change_call,
    clock,
    find_numbers,
    first,
    make_number,
    read_call,
    write_call,
)

_LOCK: Final = """
insert into taskmq.definition as d (tenant, name, version, is_deleted) values ($1, $2, 0, true)
on conflict (tenant, name) do update set version = d.version returning version, is_deleted"""
_DROP_NEW: Final = "delete from taskmq.definition where tenant = $1 and name = $2 and version = 0"
_ADD: Final = """
insert into taskmq.definition_version (tenant, name, version, at, actor, content) values ($1, $2, $3, $4, $5, $6)"""
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
where d.tenant = $1 and not d.is_deleted and d.name >= $2 and d.name < $3 and d.name > $4 order by d.name limit $5"""
_VERSIONS: Final = """
select name, version, at, actor, content from taskmq.definition_version
where tenant = $1 and name = $2 and version < $3 order by version desc limit $4"""
_DELETE: Final = """
update taskmq.definition set is_deleted = true
where tenant = $1 and name = $2 and not is_deleted and version = coalesce($3, version) returning name"""
_BEYOND: Final = 2**31 - 1


class SqlDefinitions(SqlCalls):
    """A `DefinitionStore` in the database's tables."""

    @write_call
    def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> Steps[PutDefinition | None]:
        text = encode_content(content).decode()
        number = yield from make_number("tenant", tenant)
        row = yield from first(_LOCK, number, name)
        assert row is not None
        last, is_deleted = row
        present = 0 if is_deleted else int(last)
        if version is not None and version != present:
            yield from ask(_DROP_NEW, number, name)
            return None
        if present:
            found = yield from first(_ONE, number, name, present)
            assert found is not None
            if found[-1] == text:
                return PutDefinition(_definition(tenant, found), False)
        made = (name, last + 1, (yield from clock()), by, text)
        yield from ask(_ADD, number, *made)
        yield from ask(_SET, number, name, last + 1)
        return PutDefinition(_definition(tenant, made), True)

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        query, args = (_LAST, (name,)) if version is None else (_ONE, (name, version))
        found = await self._read(tenant, name, query, *args)
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

    @change_call
    def delete(self, tenant: str, name: str, *, version: int | None = None) -> Steps[bool]:
        if not can_be_kept(tenant, name):
            return False
        numbers = yield from find_numbers("tenant", [tenant])
        return bool(numbers) and (yield from first(_DELETE, numbers[tenant], name, version)) is not None

    @read_call
    def _read(self, tenant: str, name: str, query: str, *args: object) -> Steps[list[Definition]]:
        if not can_be_kept(tenant, name):
            return []
        numbers = yield from find_numbers("tenant", [tenant])
        rows = (yield from ask(query, numbers[tenant], *args)) if numbers else ()
        return [_definition(tenant, row) for row in rows]


def _definition(tenant: str, row: Row) -> Definition:
    name, version, at, by, content = row
    return Definition(tenant=tenant, name=name, version=version, at=at, by=by, content=decode_content(content))
