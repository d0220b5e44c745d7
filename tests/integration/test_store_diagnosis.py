"""The doctor's findings about PostgreSQL."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.finding import Finding
from taskmq_sql import open_job_store
from taskmq_sql.postgres.upkeep.diagnosis import judge
from tests.servers import PostgreSQL

_WELL: dict[str, Any] = {
    "version": 150_004,
    "is_standby": False,
    "lag": None,
    "durability": "on",
    "oldest": None,
    "used": 10,
    "room": 100,
    "table": "ready",
    "dead": 5,
}


def _find_problems(url: str) -> list[Finding]:
    async def main() -> list[Finding]:
        store = open_job_store(url, BrokerOptions(name="doctor"))
        try:
            return await store.diagnose()
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_a_healthy_database_is_one_line() -> None:
    (finding,) = judge(_WELL, ahead=7, address="postgresql://db/jobs")

    expected = "postgresql://db/jobs: partitions 7 days ahead, no long transactions"
    assert (finding.level, finding.finding) == ("ok", expected)


@pytest.mark.parametrize(
    ("ill", "level", "text"),
    [
        ({"version": 120_012}, "problem", "PostgreSQL 12 is too old"),
        ({"is_standby": True}, "problem", "this server is a standby: it rejects writes"),
        ({"lag": 31}, "warning", "a standby is 31 s behind"),
        ({"durability": "off"}, "problem", "synchronous_commit is off"),
        ({"oldest": 301_000}, "warning", "a transaction has been open for 301 s"),
        ({"used": 81}, "warning", "81 of 100 connections are in use"),
        ({"table": "job", "dead": 2_000_000}, "warning", "taskmq.job has 2,000,000 dead rows"),
        ({"ahead": 0}, "warning", "tomorrow has no partition yet"),
    ],
)
def test_each_problem_is_found_with_its_remedy(ill: dict[str, Any], level: str, text: str) -> None:
    facts = {"ahead": 7, **_WELL, **ill}

    (finding,) = judge(facts, ahead=facts["ahead"], address="postgresql://db/jobs")

    assert (finding.level, finding.finding[: len(text)]) == (level, text)
    assert finding.remedy


def test_a_server_reports_its_problems(postgres_server: PostgreSQL, job_store_url: str) -> None:
    assert [finding.level for finding in _find_problems(job_store_url)] == ["ok"]
    database = urlsplit(job_store_url).path.removeprefix("/")
    postgres_server.sql(f'alter database "{database}" set synchronous_commit = off')
    days = "select string_agg(inhrelid::regclass::text, ', ') from pg_inherits where inhparent = 'taskmq.job_history'"
    partitions = postgres_server.sql(f"{days}::regclass", url=job_store_url)
    postgres_server.sql(f"drop table {partitions}", url=job_store_url)

    found = _find_problems(job_store_url)

    assert [finding.finding.split(":")[0] for finding in found] == [
        "synchronous_commit is off",
        "tomorrow has no partition yet",
    ]
