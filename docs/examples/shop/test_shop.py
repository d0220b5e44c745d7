"""`pytest` in this folder: no broker, no Redis, no waiting."""

import mailbox
import sqlite3
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import shop
from fastapi.testclient import TestClient
from PIL import Image
from web import web

from taskmq import JobCancelled
from taskmq.testing import Harness

ANN = {"x-seller": "ann"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def taskmq_start() -> datetime:
    """The evening before the night in which Paris has no half past two."""
    return datetime(2027, 3, 27, 20, tzinfo=UTC)


def mails(home: Path) -> list[str]:
    return sorted(str(mail["Subject"]) for mail in mailbox.Maildir(home / "mail"))


def order(client: TestClient, customer: str, key: uuid.UUID) -> Any:
    return client.put(f"/orders/{key}", json={"customer": customer, "cents": 500}, headers=ANN).json()


def test_an_order_that_is_repeated_is_confirmed_once(taskmq_app: Harness, home: Path) -> None:
    key = uuid.uuid4()
    with TestClient(web) as client:
        assert order(client, "bob", key) == order(client, "bob", key) == {"order": 1}

    taskmq_app.drain()

    assert mails(home) == ["Your order 1"]


def test_the_orders_of_a_customer_are_booked_in_their_order(taskmq_app: Harness, home: Path) -> None:
    with TestClient(web) as client:
        for customer in ("bob", "eve", "bob", "eve", "bob"):
            order(client, customer, uuid.uuid4())

    taskmq_app.drain()

    with closing(sqlite3.connect(home / "shop.db")) as db:
        booked = db.execute("SELECT customer, number FROM ledger ORDER BY place").fetchall()
    assert [number for customer, number in booked if customer == "bob"] == [1, 3, 5]
    assert [number for customer, number in booked if customer == "eve"] == [2, 4]


def test_a_photo_gets_a_thumbnail(taskmq_app: Harness, home: Path) -> None:
    Image.new("RGB", (400, 200)).save(home / "hat.png")

    job = shop.thumbnail.send("hat.png")
    taskmq_app.drain()

    with Image.open(home / job.result()) as small:
        assert small.size == (128, 64)


def test_the_night_in_which_clocks_change_has_one_report(
    taskmq_app: Harness, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop, "rate_of", {"CHF": 0.5}.__getitem__)
    with closing(sqlite3.connect(home / "shop.db")) as db, db:
        db.executescript(shop.TABLES)
        db.executemany("INSERT INTO orders (cents, currency, day) VALUES (?, 'CHF', '2027-03-27')", [[100]] * 30)

    taskmq_app.advance("12h")

    assert mails(home) == ["30 orders on 2027-03-27: 15.00 EUR"]


def test_a_cancelled_export_makes_no_file(taskmq_app: Harness, home: Path) -> None:
    job = shop.export.send("ann", 2027)
    job.cancel()
    taskmq_app.drain()

    with pytest.raises(JobCancelled):
        job.result()
    assert not list(home.glob("*.csv"))
