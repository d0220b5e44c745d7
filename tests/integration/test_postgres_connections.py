"""Connections to PostgreSQL: their first queries, their use after errors and cancellations, and their loss."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from taskmq.errors import StoreUnavailable
from taskmq.testing.runner import CancelPoint, cancel_at
from taskmq_sql.postgres.connections import Connection, Connections, Purpose
from taskmq_sql.postgres.database import Database
from tests.docs.blocks import ROOT
from tests.servers.waiting import until

pytestmark = pytest.mark.real_time

_PROCESS = "select pg_backend_pid()"


async def _do_nothing(connection: Connection) -> None:
    del connection


@asynccontextmanager
async def _connections(
    url: str,
    *,
    prepare: Callable[[Connection], Awaitable[None]] = _do_nothing,
    heal: Callable[[Connection], Awaitable[None]] = _do_nothing,
) -> AsyncGenerator[Connections, None]:
    opened = Connections(url, address=url, name="test", size=1, settings=(), prepare=prepare, heal=heal)
    try:
        yield opened
    finally:
        await opened.aclose()


async def _ask_server(url: str, query: str, *arguments: object) -> tuple[object, list[str]]:
    """Return the answer of a new connection, and the statements that it sent for that."""
    sent: list[str] = []

    async def ask(connection: Any) -> object:

        def note(record: Any) -> None:
            sent.append(record.query)

        connection.add_query_logger(note)
        return await connection.fetchval(query, *arguments)

    async with _connections(url) as connections:
        return await connections.run("read", ask), sent


async def test_arrays_of_built_in_types_are_looked_up_once_in_a_process(postgres_url: str) -> None:
    query = "select $1::macaddr[]"
    answer, sent = await _ask_server(postgres_url, query, ["08:00:2b:01:02:03"])
    assert len(sent) > 1
    assert await _ask_server(postgres_url, query, answer) == (answer, [query])


async def test_types_of_a_database_are_looked_up_on_each_connection(postgres_url: str) -> None:
    await _ask_server(postgres_url, "create type mood as enum ('calm')")
    query = "select $1::mood[]"
    for _ in range(2):
        answer, sent = await _ask_server(postgres_url, query, ["calm"])
        assert answer == ["calm"]
        assert len(sent) > 1


def test_a_process_has_at_most_the_documented_number_of_connections() -> None:
    kinds = vars(Database("postgresql://nobody@127.0.0.1:1/none", name="test")).values()

    most = sum(each.size for each in kinds if isinstance(each, Connections))

    assert f"and {most} at most" in (ROOT / "docs" / "store.md").read_text()


@pytest.mark.parametrize("purpose", ["read", "statement", "transaction"])
async def test_a_connection_stays_open_when_the_work_on_it_raises(postgres_url: str, purpose: Purpose) -> None:
    async def fail(connection: Connection) -> int:
        await connection.execute("create table unwanted (x int)" if purpose == "transaction" else "select 1")
        raise LookupError(await connection.fetchval(_PROCESS))

    async with _connections(postgres_url) as connections:
        with pytest.raises(LookupError) as failed:
            await connections.run(purpose, fail)

        process = await connections.run("read", lambda connection: connection.fetchval(_PROCESS))
        table = await connections.run(
            "read", lambda connection: connection.fetchval("select to_regclass('unwanted')")
        )
    assert failed.value.args == (process,)
    assert table is None


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_an_abandoned_statement_ends_at_the_server(postgres_url: str, how: str) -> None:
    async def work(connection: Any) -> object:
        return await connection.fetchval("select pg_sleep(600)", timeout=0.2 if how == "out of time" else None)

    async with _connections(postgres_url) as connections, _connections(postgres_url) as others:

        async def is_at_work() -> bool:
            return bool(await others.run("read", lambda connection: connection.fetchval(_AT_WORK)))

        sleeping = asyncio.create_task(connections.run("read", work))
        if how == "cancelled":
            await until(is_at_work)
            sleeping.cancel()
        with pytest.raises((asyncio.CancelledError, StoreUnavailable)):
            await sleeping

        async def is_over() -> bool:
            return not await is_at_work()

        await until(is_over)
        assert await connections.run("read", lambda connection: connection.fetchval("select 7")) == 7


@pytest.mark.parametrize("purpose", ["read", "statement", "transaction"])
async def test_a_cancelled_call_keeps_its_connection(postgres_url: str, purpose: Purpose) -> None:
    process: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work(connection: Connection) -> None:
        process.set_result(await connection.fetchval(_PROCESS))
        await connection.execute("select pg_sleep(600)")

    async with _connections(postgres_url) as connections, _connections(postgres_url) as others:

        async def shows(query: str, state: str) -> bool:
            shown = "select query = $2 and state = $3 from pg_stat_activity where pid = $1"
            return bool(await others.run("read", lambda other: other.fetchval(shown, number, query, state)))

        calling = asyncio.create_task(connections.run(purpose, work))
        number = await process
        # The server ignores the cancellation of a statement that has not arrived.
        await until(lambda: shows("select pg_sleep(600)", "active"))
        calling.cancel()
        await asyncio.wait([calling])
        await until(lambda: shows("rollback", "idle"))

        assert calling.cancelled()
        assert await connections.run("read", lambda connection: connection.fetchval(_PROCESS)) == number


async def test_a_connection_is_kept_if_its_caller_is_cancelled_while_it_opens(postgres_url: str) -> None:
    processes: list[int] = []
    is_prepared = asyncio.Event()

    async def prepare(connection: Connection) -> None:
        processes.append(await connection.fetchval(_PROCESS))
        await is_prepared.wait()

    async with _connections(postgres_url, prepare=prepare) as connections:

        async def is_connected() -> bool:
            return bool(processes)

        calling = asyncio.create_task(connections.run("read", _do_nothing))
        await until(is_connected)
        calling.cancel()
        await asyncio.wait([calling])
        is_prepared.set()
        await asyncio.sleep(0)

        await connections.run("read", _do_nothing)
    assert len(processes) == 1


async def test_a_call_cancelled_at_any_await_leaves_no_transaction_open(postgres_url: str) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("select 1")
        await connection.execute(_NO_PARTITION)

    async def heal(connection: Connection) -> None:
        await connection.execute("begin")
        await connection.execute("select pg_sleep(0.001)")
        await connection.execute("commit")

    async def is_in_transaction(connection: Any) -> bool:
        await connection.execute("select 1")
        return bool(connection.is_in_transaction())

    for point in CancelPoint.ALL:
        async with _connections(postgres_url, heal=heal) as connections:
            await connections.run("read", _do_nothing)
            with suppress(StoreUnavailable):
                await cancel_at(point, connections.run("transaction", work), within=30)
            assert not await connections.run("read", is_in_transaction), point


async def test_a_transaction_that_the_server_ended_during_a_stall_is_reported(postgres_url: str) -> None:
    async def work(connection: Connection) -> object:
        await _stall_until_the_server_ends(connection, postgres_url)
        return await connection.fetchval(_PROCESS)

    async with _connections(postgres_url) as connections:
        with pytest.raises(
            StoreUnavailable, match="the server ended the connection, see its log; nothing was changed"
        ):
            await connections.run("transaction", work)
        assert await connections.run("read", lambda connection: connection.fetchval("select 7")) == 7


@pytest.mark.parametrize(
    ("purpose", "how"), [("read", "terminated"), ("transaction", "terminated"), ("transaction", "stalled")]
)
async def test_work_whose_connection_is_lost_runs_once_more(postgres_url: str, purpose: Purpose, how: str) -> None:
    processes: list[int] = []

    async def work(connection: Connection) -> object:
        processes.append(await connection.fetchval(_PROCESS))
        if len(processes) == 1:
            await _lose(connection, postgres_url, how)
        return await connection.fetchval(_PROCESS)

    async with _connections(postgres_url) as connections:
        assert await connections.run(purpose, work) == processes[1]
    assert processes[0] != processes[1]


@pytest.mark.parametrize("purpose", ["statement", "transaction"])
async def test_work_that_may_be_committed_is_not_run_again(postgres_url: str, purpose: Purpose) -> None:
    runs = 0

    async def work(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        await connection.execute(_ENDING if purpose == "statement" else _ENDING_AT_COMMIT)

    async with _connections(postgres_url) as connections:
        with pytest.raises(StoreUnavailable, match="whether the change was made is unknown") as failed:
            await connections.run(purpose, work)
    assert (runs, failed.value.is_certain) == (1, False)


async def _lose(connection: Connection, url: str, how: str) -> None:
    if how == "stalled":
        await _stall_until_the_server_ends(connection, url)
        return
    process = await connection.fetchval(_PROCESS)
    async with _connections(url) as others:
        await others.run("read", lambda other: other.fetchval("select pg_terminate_backend($1, 10000)", process))


async def test_the_error_of_the_work_outlives_the_connection(postgres_url: str) -> None:
    async def work(connection: Connection) -> object:
        await _stall_until_the_server_ends(connection, postgres_url)
        raise LookupError

    async with _connections(postgres_url) as connections:
        with pytest.raises(LookupError):
            await connections.run("transaction", work)
        assert await connections.run("read", lambda connection: connection.fetchval("select 7")) == 7


async def _stall_until_the_server_ends(connection: Connection, url: str) -> None:
    """Let the transaction time out while the loop is blocked; asyncpg then reads the answer and the end at once."""
    process = await connection.fetchval(_PROCESS)
    statement = "set local idle_in_transaction_session_timeout = '1ms'"
    sent = asyncio.create_task(connection.execute(statement))
    await asyncio.sleep(0)
    with psycopg.connect(url, autocommit=True) as other:
        while other.execute("select from pg_stat_activity where pid = %s", [process]).rowcount:
            pass
    await sent


_ENDING = "select pg_terminate_backend(pg_backend_pid())"
_ENDING_AT_COMMIT = """
create table ended (x int);
create function end_it() returns trigger language plpgsql as 'begin perform pg_terminate_backend(pg_backend_pid());
return null; end';
create constraint trigger ends after insert on ended deferrable initially deferred
for each row execute function end_it();
insert into ended values (1)"""
_NO_PARTITION = """
do $$ begin raise check_violation using message = 'no partition of relation "job" found for row'; end $$"""
_AT_WORK = """
select count(*) from pg_stat_activity
where datname = current_database() and state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid()"""
