"""docs/security.md matches the code."""

import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.access import SessionTimes
from taskmq.access.passwords import _load_known
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.identity import Actor, NewUser, Tenant
from taskmq.errors import StoreUnavailable
from taskmq.model.identity import FORGET_AFTER_MS, throttle_keys
from taskmq.model.states import JobState
from taskmq.operations.audit import verify_chain
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq_sql import open_job_store
from tests.cli.kit import run_here
from tests.docs.blocks import blocks_of
from tests.docs.security_page import PAGE, read_table, table
from tests.servers.postgres import PostgreSQL

_BY = Actor(user="tests")


def test_the_roles_are_those_of_the_code() -> None:
    assert read_table() == table(), "run: python -m tests.docs.security_page"


def test_the_figures_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    pair, name, address = throttle_keys("ann", "192.0.2.1")
    times = SessionTimes()

    assert f"{pair.free} for a name from one address, {name.free} for a name, {address.free} for an address" in text
    assert f"forgotten {FORGET_AFTER_MS // 60_000} minutes after the last" in text
    assert f"idle {times.idle / 60:.0f} minutes, {times.longest / 3600:.0f} hours at the longest" in text
    assert len(_load_known()) >= 18_000
    assert times.fresh < 60


def test_the_commands_of_the_roles_work_as_described(tmp_path: Path) -> None:
    (block,) = [block for block in blocks_of(PAGE) if any("admin init" in command for command in block.commands)]
    environment = {"TASKMQ_STORE": f"sqlite:///{tmp_path}/jobs.db"}

    for command in block.commands:
        tokens = shlex.split(command.partition("#")[0])
        assert tokens[0] == "taskmq"
        done = run_here(tmp_path, *tokens[1:], env=environment, text="ostrich lamp violet nine\n")
        assert done.code == 0, (command, done.err)

    listed = run_here(tmp_path, "admin", "role", "list", env=environment)
    assert "acme    ann    operator  billing.*" in listed.out


_SEAL = "insert into taskmq.audit_seal (position, number, hash) values ({position}, 999999, 'x')"


@pytest.fixture
def append_only(postgres_server: PostgreSQL, job_store_url: str) -> Iterator[str]:
    """Create the page's role; return the URL of a store for it."""
    block, _ = [block for block in blocks_of(PAGE) if block.language == "sql"]
    role, password = f"server_{secrets.token_hex(4)}", secrets.token_hex(16)
    statements = block.text.replace("taskmq_server", role).replace("change me", password)
    postgres_server.sql(statements, url=job_store_url)
    parts = urlsplit(job_store_url)
    place = parts.netloc.rpartition("@")[2]
    yield parts._replace(netloc=f"{role}:{password}@{place}").geturl()
    postgres_server.sql(f"drop owned by {role}", url=job_store_url)
    postgres_server.sql(f"drop role {role}")


@pytest.mark.real_time
async def test_the_role_on_the_page_only_appends_to_the_audit(append_only: str, job_store_url: str) -> None:
    store, owner = (open_job_store(url, BrokerOptions(name="test")) for url in (append_only, job_store_url))
    identity = store.identity
    user = NewUser(id="u-1", name="ann", password_hash="x")
    try:
        await identity.accounts.add_tenant(Tenant(name="acme"), by=_BY)
        await identity.accounts.add_user(user, by=_BY)
        with pytest.raises((StoreUnavailable, asyncpg.InsufficientPrivilegeError), match="permission denied"):
            await identity.audit.seal()
        assert await owner.identity.audit.seal() == 2
        with pytest.raises((StoreUnavailable, asyncpg.InsufficientPrivilegeError), match="permission denied"):
            await identity.accounts.erase_user("u-1", by=_BY)
        assert await identity.accounts.account("u-1") is not None
    finally:
        await store.aclose()
        await owner.aclose()

    connection = await asyncpg.connect(append_only)
    try:
        for table_name, column in (("audit", "at"), ("audit_seal", "hash")):
            for statement in (
                _SEAL.format(position=2**63 - 1),
                _SEAL.format(position=3),
                f"update taskmq.{table_name} set {column} = {column}",
                f"delete from taskmq.{table_name}",
                f"truncate taskmq.{table_name}",
                f"drop table taskmq.{table_name}",
                f"alter table taskmq.{table_name} disable trigger all",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
        assert await connection.fetchval("select count(*) from taskmq.audit") == 2
    finally:
        await connection.close()


@pytest.mark.real_time
async def test_the_role_on_the_page_submits_jobs_and_cannot_read_the_report_keys(
    append_only: str, job_store_url: str
) -> None:
    owner, server = (open_job_store(url, BrokerOptions(name="test")) for url in (job_store_url, append_only))
    try:
        assert len(await owner.dispatching.report_keys()) == 1
        driver = JobDriver(server)
        job = await driver.submit()
        await driver.expect_update(job, JobState.CANCELLED, kind="cancel")
        await server.check()
        assert not [finding for finding in await server.diagnose() if "report_key" in str(finding)]
        for denied in (server.dispatching.report_keys, server.dispatching.rotate_report_key):
            with pytest.raises((StoreUnavailable, asyncpg.InsufficientPrivilegeError), match="permission denied"):
                await denied()
    finally:
        await server.aclose()
        await owner.aclose()


@pytest.mark.real_time
async def test_a_forged_seal_is_found_and_removed(
    append_only: str, job_store_url: str, postgres_server: PostgreSQL
) -> None:
    # As left by older statements of the page, before they revoked this permission.
    role = urlsplit(append_only).username
    postgres_server.sql(f"grant insert on taskmq.audit_seal to {role}", url=job_store_url)
    store = open_job_store(job_store_url, BrokerOptions(name="test"))
    audit = store.identity.audit
    connection = await asyncpg.connect(append_only)
    try:
        await audit.add([_BY.entry("queue.purge", kind="queue", subject=f"{each}") for each in range(3)])
        assert await audit.seal(limit=2) == 2
        with pytest.raises(
            asyncpg.CheckViolationError, match="the next seal has position 3, and not 9223372036854775807"
        ):
            await connection.execute(_SEAL.format(position=2**63 - 1))
        await connection.execute(_SEAL.format(position=3))
        assert (await verify_chain(audit)).fault == (
            "position 3 is missing, although the chain was sealed up to position 3"
        )
        assert await audit.seal() == 1
        assert "position 3" in (await verify_chain(audit)).fault

        _, repair = [block.text for block in blocks_of(PAGE) if block.language == "sql"]
        postgres_server.sql(repair.replace("1234", "3"), url=job_store_url)
        assert await audit.seal() == 1
        report = await verify_chain(audit)
        assert (report.fault, report.head.position, report.unsealed) == ("", 3, 0)
    finally:
        await connection.close()
        await store.aclose()
