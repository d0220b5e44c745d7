"""Versions of workflows. A content is stored once, and deleted with the last version or run that has it."""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import StoredVersion
from taskmq_sql.steps import Row, Steps, ask, clock, first

# Locked, so that no deletion of unused contents overlooks the version or the run that this transaction inserts.
_HAS_CONTENT: Final = "select 1 from taskmq.workflow_content where version = $1 for share"
_KEEP: Final = """
insert into taskmq.workflow_content (version, content) values ($1, $2)
on conflict (version) do update set version = excluded.version"""
_CONTENT: Final = "select content from taskmq.workflow_content where version = $1"
_HAS_VERSION: Final = """
select 1 from taskmq.workflow_version where tenant = $1 and name = $2 and version = $3 for share"""
_PUT_VERSION: Final = """
insert into taskmq.workflow_version (tenant, name, version, at) values ($1, $2, $3, $4)
on conflict (tenant, name, version) do nothing returning version"""
_MAKE_CURRENT: Final = """
insert into taskmq.workflow (tenant, name, version) values ($1, $2, $3)
on conflict (tenant, name) do update set version = excluded.version"""
_CURRENT: Final = "select version from taskmq.workflow where tenant = $1 and name = $2"
_VERSIONS: Final = """
select v.name, v.version, v.at, w.version = v.version from taskmq.workflow_version v
join taskmq.workflow w on w.tenant = v.tenant and w.name = v.name where v.tenant = $1 and v.name = $2"""
_LIST: Final = """
select v.name, v.version, v.at, true from taskmq.workflow w
join taskmq.workflow_version v on v.tenant = w.tenant and v.name = w.name and v.version = w.version
where w.name > $1 {tenant} order by w.name, w.tenant limit $2"""
_STORED: Final = "select distinct version from taskmq.workflow_version where version = any($1::text[])"
_OF_TENANT: Final = "select version from taskmq.workflow_version where tenant = $1"
_FORGET: Final = (
    "delete from taskmq.workflow where tenant = $1",
    "delete from taskmq.workflow_version where tenant = $1",
)
_LOCK_CONTENTS: Final = """
select version from taskmq.workflow_content where version = any($1::text[]) order by version for update"""
# A later snapshot than the lock: it contains what others inserted before.
_FORGET_CONTENTS: Final = """
delete from taskmq.workflow_content where version = any($1::text[])
  and not exists (select 1 from taskmq.run r where r.version = workflow_content.version)
  and not exists (select 1 from taskmq.workflow_version v where v.version = workflow_content.version)"""


def put_workflow(tenant: str, name: str, version: str, content: bytes) -> Steps[StoredVersion]:
    """Implement `RunStore.put_workflow`."""
    now = yield from clock()
    yield from keep_content(version, content)
    if (yield from first(_PUT_VERSION, tenant, name, version, now)) is not None:
        yield from ask(_MAKE_CURRENT, tenant, name, version)
        return StoredVersion(name=name, version=version, at=now, is_current=True, is_new=True)
    (found,) = yield from ask(f"{_VERSIONS} and v.version = $3", tenant, name, version)
    return _version(found)


def activate(tenant: str, name: str, version: str) -> Steps[StoredVersion | None]:
    """Implement `RunStore.activate`."""
    found = yield from first(f"{_VERSIONS} and v.version = $3", tenant, name, version)
    if found is None:
        return None
    yield from ask(_MAKE_CURRENT, tenant, name, version)
    return StoredVersion(name=name, version=version, at=found[2], is_current=True)


def read_workflow(tenant: str, name: str, version: str) -> Steps[tuple[StoredVersion, bytes] | None]:
    """Implement `RunStore.workflow`."""
    wanted = version or (yield from current_version(tenant, name))
    found = yield from first(f"{_VERSIONS} and v.version = $3", tenant, name, wanted)
    content = yield from content_of(wanted)
    return None if found is None or content is None else (_version(found), content)


def list_workflows(tenant: str | None, after: str, limit: int) -> Steps[list[StoredVersion]]:
    """Implement `RunStore.workflows`."""
    if tenant is None:
        rows = yield from ask(_LIST.format(tenant=""), after, limit)
    else:
        rows = yield from ask(_LIST.format(tenant="and w.tenant = $3"), after, limit, tenant)
    return [_version(row) for row in rows]


def list_versions(tenant: str, name: str) -> Steps[list[StoredVersion]]:
    """Implement `RunStore.versions`."""
    rows = yield from ask(f"{_VERSIONS} order by v.at desc, v.version", tenant, name)
    return [_version(row) for row in rows]


def current_version(tenant: str, name: str) -> Steps[str]:
    """Return the current version of a workflow; "" if there is none."""
    found = yield from first(_CURRENT, tenant, name)
    return "" if found is None else str(found[0])


def has_version(tenant: str, name: str, version: str) -> Steps[bool]:
    """Return whether a workflow has this version; it does until the transaction ends."""
    return (yield from first(_HAS_VERSION, tenant, name, version)) is not None


def content_of(version: str) -> Steps[bytes | None]:
    """Return the content of a version; None if there is none."""
    found = yield from first(_CONTENT, version)
    return None if found is None else bytes(found[0])


def keep_content(version: str, content: bytes) -> Steps[None]:
    """Store a content unless it is stored already."""
    if (yield from first(_HAS_CONTENT, version)) is None:
        yield from ask(_KEEP, version, content)


def change_contents(changes: Sequence[tuple[str, str, bytes]]) -> Steps[None]:
    """Store the new contents of runs; delete those that they had unless they are in use.

    Args:
        changes: for each run the version that it had, and its new version with the content.
    """
    contents = {version: content for _, version, content in changes}
    # Sorted, because other transactions may lock the same contents.
    for version in sorted(contents):
        yield from keep_content(version, contents[version])
    before = {version for version, _, _ in changes}
    stored = {row[0] for row in (yield from ask(_STORED, list(before)))} if before else before
    if unused := before - stored:
        yield from forget_contents(list(unused))


def forget_contents(versions: Sequence[str]) -> Steps[None]:
    """Delete the contents that no version and no run has any more."""
    yield from ask(_LOCK_CONTENTS, list(versions))
    yield from ask(_FORGET_CONTENTS, list(versions))


def forget_workflows(tenant: str) -> Steps[None]:
    """Delete the workflows of a tenant; runs keep their contents."""
    versions = [row[0] for row in (yield from ask(_OF_TENANT, tenant))]
    for statement in _FORGET:
        yield from ask(statement, tenant)
    yield from forget_contents(versions)


def _version(row: Row) -> StoredVersion:
    return StoredVersion(name=row[0], version=row[1], at=row[2], is_current=bool(row[3]))
