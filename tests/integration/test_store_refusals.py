"""Unsuitable databases are refused while they are empty, and by a taskmq error afterwards."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from taskmq import TaskMQ
from taskmq.cli.exits import MISMATCH
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobDetail, NewJob
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, StoreMismatch, StoreRefused
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.filters import JobFilter
from taskmq_embedded.work import Care
from taskmq_sql import open_job_store
from taskmq_sql.postgres.connections import Connections
from taskmq_sql.sqlite.file.thread import open_threads
from taskmq_sql.sqlite.file.transaction import Transaction
from tests.cli.kit import run_process
from tests.servers import PostgreSQL

_SECRET = "an argument of a task"
_WORDS = "\u2602 and more"


def _database(server: PostgreSQL, encoding: str) -> str:
    name = f"test_{secrets.token_hex(6)}"
    server.sql(f"create database {name} encoding '{encoding}' lc_collate 'C' lc_ctype 'C' template template0")
    return urlsplit(server.url)._replace(path=f"/{name}").geturl()


_LATER = pytest.mark.nightly(
    "tests/integration/test_store_refusals.py::test_nothing_starts_with_tables_created_in_such_an_encoding_before"
)
_TRANSACTION = pytest.mark.nightly(
    "tests/integration/test_store_refusals.py::test_a_postgresql_refusal_is_a_taskmq_error_without_its_values"
)


@pytest.fixture(params=["LATIN1", *(pytest.param(each, marks=_LATER) for each in ("WIN1252", "EUC_JP"))])
def narrow(request: pytest.FixtureRequest, postgres_server: PostgreSQL) -> Iterator[tuple[str, str]]:
    """Create a database that cannot encode most texts; return it and its encoding."""
    url = _database(postgres_server, request.param)
    yield url, request.param
    postgres_server.drop_database(url)


def _job(**fields: Any) -> NewJob:
    given: dict[str, Any] = {
        "id": new_job_id(1_800_000_000_000, secrets.token_bytes(10)),
        "task": "shop.pay",
        "queue": "work",
        "body": b"{}",
    }
    return NewJob(**{**given, **fields})


@pytest.mark.nightly(
    "tests/integration/test_store_refusals.py::test_nothing_starts_with_tables_created_in_such_an_encoding_before"
)
@pytest.mark.real_time
async def test_tables_are_not_created_in_an_encoding_that_most_texts_do_not_fit(
    narrow: tuple[str, str], postgres_server: PostgreSQL, tmp_path: Path
) -> None:
    url, encoding = narrow
    store: Any = open_job_store(url, BrokerOptions(name="test"))
    with pytest.raises(StoreMismatch, match=f"'test_[0-9a-f]+' has the encoding {encoding}.*encoding 'UTF8'"):
        await store.upgrade()
    await store.aclose()

    (tmp_path / "shop.py").write_text("from taskmq import TaskMQ\n\napp = TaskMQ('memory://')\n")
    refused = await asyncio.to_thread(run_process, tmp_path, "store", "upgrade", "--store", url)
    assert refused.code == MISMATCH
    assert "create database NAME encoding 'UTF8' template template0" in refused.err
    assert "Traceback" not in refused.err
    assert "0" in str(postgres_server.sql("select count(*) from pg_namespace where nspname = 'taskmq'", url=url))


@pytest.mark.real_time
async def test_nothing_starts_with_tables_created_in_such_an_encoding_before(
    job_store_url: str, postgres_server: PostgreSQL
) -> None:
    statement = "update pg_database set encoding = pg_char_to_encoding('LATIN1') where datname = current_database()"
    postgres_server.sql(statement, url=job_store_url)

    app = TaskMQ("memory://", store=job_store_url)
    with pytest.raises(StoreMismatch, match="has the encoding LATIN1"):
        await app.sessions.store().check()
    with pytest.raises(StoreMismatch, match="has the encoding LATIN1"):
        await app.jobs.acount(JobFilter())
    await app.aclose()


@pytest.mark.nightly(
    "tests/integration/test_store_refusals.py::test_no_value_of_a_job_raises_a_driver_error_in_its_submitter"
)
@pytest.mark.real_time
async def test_a_database_without_an_encoding_keeps_every_text_unchanged(postgres_server: PostgreSQL) -> None:
    url = _database(postgres_server, "SQL_ASCII")
    store: Any = open_job_store(url, BrokerOptions(name="test"))
    try:
        await store.upgrade()
        job = _job(key=_WORDS, task=_WORDS, detail=JobDetail(description=_WORDS, labels={_WORDS: _WORDS}))
        (answer,) = await store.submit([job])

        assert answer.is_new
        record = await store.get(job.id)
        assert (record.key, record.task, record.detail) == (_WORDS, _WORDS, job.detail)
        assert await store.find_key("", _WORDS) == job.id
        app = TaskMQ("memory://", store=url)
        page = await app.jobs.alist(JobFilter(task_prefix="\u2602", labels=((_WORDS, _WORDS),)))
        assert [each.id for each in page.jobs] == [job.id]
        await app.aclose()
    finally:
        await store.aclose()
        postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("job_store_url"))


_ODD: list[dict[str, Any]] = [
    {"priority": 2**40},
    {"priority": -(2**70)},
    {"due": 2**63},
    {"due": -(2**70)},
    {"expires": 2**64},
    {"key": "\ud800"},
    {"key": "a\0b"},
    {"task": "\ud800"},
    {"tenant": "\ud800" * 300},
    {"queue": "q" * 100_000},
    {"id": "no uuid"},
    {"body": "no bytes"},
    {"fingerprint": "no bytes"},
    {"held": "perhaps"},
]


@pytest.mark.real_time
async def test_no_value_of_a_job_raises_a_driver_error_in_its_submitter(store_url: str) -> None:
    store = open_job_store(store_url, BrokerOptions(name="test"))
    try:
        for odd in _ODD:
            with suppress(StoreRefused, InvalidOption):
                await store.submit([_job(**odd)])
        assert (await store.submit([_job()]))[0].is_new
    finally:
        await store.aclose()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("statement", "values", "words"),
    [
        ("select 1 / 0", (), "DivisionByZeroError"),
        ("select $1::int", (_SECRET,), "DataError"),
        ("select no_such_column", (), 'UndefinedColumnError: column "no_such_column" does not exist'),
        ("insert into only_one values ($1)", (_SECRET,), "CheckViolationError"),
        ("select convert_from('\\xff', 'UTF8')", (), "CharacterNotInRepertoireError"),
    ],
)
@pytest.mark.parametrize(
    "purpose",
    [*(pytest.param(each, marks=_TRANSACTION) for each in ("read", "statement")), "transaction"],
)
async def test_a_postgresql_refusal_is_a_taskmq_error_without_its_values(
    postgres_url: str,
    postgres_server: PostgreSQL,
    statement: str,
    values: tuple[object, ...],
    words: str,
    purpose: Any,
) -> None:
    postgres_server.sql("create table only_one (x text check (x = 'y'))", url=postgres_url)

    async def nothing(_: Any) -> None: ...

    connections = Connections(
        postgres_url,
        address="here",
        name="test",
        size=1,
        settings=("select 1",),
        plans=9,
        prepare=nothing,
        heal=nothing,
    )
    with pytest.raises(StoreRefused, match=words) as refused:
        await connections.run(purpose, lambda connection: connection.fetch(statement, *values))
    assert _SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert (await connections.run("read", lambda connection: connection.fetchval("select 7"))) == 7
    await connections.aclose()


@pytest.mark.parametrize(
    ("statement", "values", "words"),
    [
        ("insert into audit_seal (position, number, hash) values (1, 1, null)", (), "IntegrityError"),
        ("select ?", (), "ProgrammingError"),
        ("select ?", (2**80,), "OverflowError"),
        ("select ?", ("\ud800",), "UnicodeEncodeError"),
        ("select ?", (object(),), "ProgrammingError|InterfaceError"),
    ],
)
@pytest.mark.real_time
async def test_a_sqlite_refusal_is_a_taskmq_error(
    tmp_path: Path, statement: str, values: tuple[object, ...], words: str
) -> None:
    writer, reader = open_threads(tmp_path / "jobs.db", SystemClock(), synchronous="NORMAL", patience=1.0)

    def work(transaction: Transaction) -> list[Any]:
        return transaction.connection.execute(statement, values).fetchall()

    with pytest.raises(StoreRefused, match=words):
        await reader.call(work, care=Care.READ)
    await reader.aclose()
    await writer.aclose()
