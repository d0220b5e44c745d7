"""`taskmq audit verify`: entries cleared manually differ from those cleared by an erasure."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.identity import Actor, AuditStore, NewUser
from taskmq.contracts.jobs import JobStore
from taskmq.model.identity import AuditEntry
from taskmq.operations.audit import verify_chain
from taskmq_sql import open_job_store
from tests.unit.app_kit import new_file_store

_BY = Actor(user_id="u-root", user="root")


@asynccontextmanager
async def _open_store(folder: Path) -> AsyncGenerator[JobStore]:
    """Open a store with two users, each of whom has purged a queue."""
    store = open_job_store(new_file_store(folder), BrokerOptions(name="test"))
    try:
        for name in ("ann", "bob"):
            await store.identity.accounts.add_user(NewUser(id=f"u-{name}", name=name), by=_BY)
            entry = AuditEntry(action="queue.purge", kind="queue", subject="q", user_id=f"u-{name}", user=name)
            await store.identity.audit.add([entry])
        await store.identity.audit.seal()
        yield store
    finally:
        await store.aclose()


def _by_hand(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / "jobs.db")
    with connection:
        connection.execute(statement)
    connection.close()


async def _fault(audit: AuditStore) -> str:
    return (await verify_chain(audit)).fault


@pytest.mark.real_time
async def test_entries_cleared_by_an_erasure_are_not_a_fault_with_or_without_a_seal(tmp_path: Path) -> None:
    async with _open_store(tmp_path) as store:
        await store.identity.accounts.erase_user("u-ann", by=_BY)

        report = await verify_chain(store.identity.audit)
        assert (report.fault, report.erased, report.unsealed) == ("", 2, 1)
        await store.identity.audit.seal()
        report = await verify_chain(store.identity.audit)
        assert (report.fault, report.erased, report.unsealed) == ("", 3, 0)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("statement", "count", "position"),
    [
        ("update audit set who = null, who_salt = null where user_id = 'u-bob'", 1, 4),
        ("update audit set what = null, what_salt = null where subject = 'u-bob'", 1, 3),
        ("update audit set what = null where kind = 'queue'", 2, 2),
        ("update audit set who = null, what = null", 6, 1),
    ],
)
async def test_entries_cleared_without_an_erasure_are_a_fault(
    tmp_path: Path, statement: str, count: int, position: int
) -> None:
    async with _open_store(tmp_path) as store:
        await store.identity.accounts.erase_user("u-ann", by=_BY)
        _by_hand(tmp_path, statement)

        assert await _fault(store.identity.audit) == (
            f"{count} parts of entries are empty although no user erasure explains it; the first is at position "
            f"{position}"
        )


@pytest.mark.real_time
async def test_an_entry_missing_below_its_seal_is_reported(tmp_path: Path) -> None:
    async with _open_store(tmp_path) as store:
        _by_hand(tmp_path, "delete from audit where number = (select max(number) from audit)")

        assert await _fault(store.identity.audit) == (
            "position 4 is missing, although the chain was sealed up to position 4"
        )
