"""`pytest` in this folder: no broker, no Redis, no PostgreSQL, no waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import invoices
import pytest
from fastapi.testclient import TestClient
from invoices import Day, Mail, Page
from sqlalchemy import select
from web import web

from taskmq import JobState
from taskmq.testing import Harness

ACME = {"x-tenant": "acme"}


class Pages:
    """Sends pages, and notes them.

    Attributes:
        sent: the numbers of the pages, in their order.
        refusals: how many times each page is refused.
    """

    def __init__(self, send: Callable[[int], Awaitable[None]]) -> None:
        self.sent: list[int] = []
        self.refusals: dict[int, int] = {}
        self._send = send

    async def send(self, number: int) -> None:
        """Send the page, unless it is refused."""
        if left := self.refusals.get(number, 0):
            self.refusals[number] = left - 1
            raise ConnectionError("the archive is away")
        await self._send(number)
        self.sent.append(number)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database of its own for each test."""
    monkeypatch.setenv("INVOICES_DATABASE", f"sqlite+aiosqlite:///{tmp_path}/invoices.db")
    asyncio.run(invoices.make_tables())
    yield
    invoices.sessions.cache_clear()


@pytest.fixture
def taskmq_start() -> datetime:
    """Two days before the night in which Berlin has no half past two; New York had that night two weeks before."""
    return datetime(2027, 3, 26, 12, tzinfo=UTC)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(web) as client:
        yield client


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    """The archive of the test, in place of `send_page`."""
    pages = Pages(invoices.send_page)
    monkeypatch.setattr(invoices, "send_page", pages.send)
    return pages


def rows(column: Any) -> list[Any]:
    async def look() -> list[Any]:
        async with invoices.sessions()() as session:
            return list(await session.scalars(select(column).order_by(column)))

    return asyncio.run(look())


def test_an_invoice_is_rendered_and_then_mailed(taskmq_app: Harness, client: TestClient) -> None:
    written = client.post("/invoices", params={"cents": 1999}, headers=ACME).json()
    waiting = invoices.app.job(written["job"], tenant="acme")
    assert waiting.state() is JobState.WAITING

    taskmq_app.drain()

    assert waiting.state() is JobState.SUCCEEDED
    assert rows(Mail.text) == ["Please pay. Invoice 1: 19.99 EUR"]


def test_an_invoice_that_is_refused_leaves_neither_a_row_nor_a_job(taskmq_app: Harness, client: TestClient) -> None:
    refused = client.post("/invoices", params={"cents": 0}, headers=ACME)
    taskmq_app.drain()

    assert refused.status_code == 422
    assert (rows(invoices.Invoice.id), invoices.app.jobs.count()) == ([], 0)


def test_the_archive_goes_on_where_it_was(taskmq_app: Harness, client: TestClient, pages: Pages) -> None:
    pages.refusals = {17: 1, 23: 1}
    for _ in range(2):
        assert client.put("/archive/2026", headers=ACME).status_code == 202

    taskmq_app.drain()

    assert client.get("/archive/2026", headers=ACME).json() == {"state": "succeeded"}
    assert pages.sent == rows(Page.number) == list(range(1, invoices.PAGES + 1))
    (job,) = invoices.app.jobs.list().jobs
    assert job.attempt == 3


def test_an_archive_that_has_failed_goes_on_under_its_id(
    taskmq_app: Harness, client: TestClient, pages: Pages
) -> None:
    pages.refusals = {17: 6}
    began = client.put("/archive/2026", headers=ACME).json()
    taskmq_app.drain(raise_errors=False)
    assert client.get("/archive/2026", headers=ACME).json() == {"state": "failed"}

    retried = client.post("/archive/2026/retry", headers=ACME)
    taskmq_app.drain()

    assert (retried.status_code, retried.json()) == (202, began)
    assert client.get("/archive/2026", headers=ACME).json() == {"state": "succeeded"}
    # No page twice: the seventh attempt has the checkpoint of the sixth.
    assert pages.sent == list(range(1, invoices.PAGES + 1))
    (job,) = invoices.app.jobs.list().jobs
    assert job.attempt == 7


def test_each_tenants_day_is_closed_once_in_each_night(taskmq_app: Harness) -> None:
    invoices.close_days()
    invoices.close_days()

    taskmq_app.advance("4d")

    utc = {
        "acme": ["27 01:30", "28 01:00", "29 00:30", "30 00:30"],
        "globex": ["27 06:30", "28 06:30", "29 06:30", "30 06:30"],
    }
    closed = rows(Day.tenant + " " + Day.instant)
    assert closed == [f"{tenant} 2027-03-{each}:00+00:00" for tenant in utc for each in utc[tenant]]
