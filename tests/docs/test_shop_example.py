"""The shop of docs/examples/shop, unchanged, on RabbitMQ, Redis and a job store in a file."""

import mailbox
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest
from PIL import Image

from tests.cli.kit import Started, environment, run_here
from tests.docs.blocks import ROOT
from tests.docs.page_shell import PYTEST
from tests.docs.serving import uvicorn
from tests.servers import eventually

_SHOP = ROOT / "docs" / "examples" / "shop"
_PATIENCE = timedelta(seconds=40)
_ANN, _BEN = {"X-Seller": "ann"}, {"X-Seller": "ben"}
_ORDERS = 50
# The duration of the night's calls at 20 a second, and the maximum delay of the first.
_LEAST_SECONDS = (_ORDERS - 1) / 20 - 1


class _Bank(ThreadingHTTPServer):
    """Answers GET /CHF, and records the instants of its calls."""

    # All workers call at once.
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Teller)
        self.calls: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Teller(BaseHTTPRequestHandler):
    server: _Bank

    def do_GET(self) -> None:
        self.server.calls.append(time.monotonic())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.5")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bank() -> Iterator[_Bank]:
    with _Bank() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "shop"
    shutil.copytree(_SHOP, there, ignore=shutil.ignore_patterns("__pycache__", "data"))
    return there


def test_the_tests_of_the_example_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, *PYTEST, "-q"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly("tests/docs/test_shop_example.py::test_the_tests_of_the_example_pass")
@pytest.mark.rabbitmq
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_shop_works_as_its_page_says(folder: Path, amqp_url: str, redis_url: str, bank: _Bank) -> None:
    env = {
        "TASKMQ_URL": amqp_url,
        "TASKMQ_STATE": redis_url,
        "TASKMQ_STORE": f"sqlite:///{folder}/jobs.db",
        "SHOP_RATES": bank.url,
    }
    with (
        uvicorn(folder, "web:web", env=env) as client,
        Started(folder, "worker", "-c", "8", "--processes", "2", env=env) as worker,
        Started(folder, "scheduler", env=env),
    ):
        worker.says("waiting for jobs")
        assert "Your year" in client.get("/").text
        _orders_are_confirmed_once_and_booked_in_order(client, folder)
        _a_photo_gets_a_thumbnail(client, folder)
        _an_export_shows_how_far_it_is_and_another_is_cancelled(client, folder)
        _the_night_has_one_report(folder, env)

    assert run_here(folder, "-o", "json", "dlq", "list", env=env).data == []
    _the_bank_was_called_at_its_rate(bank.calls)


def _orders_are_confirmed_once_and_booked_in_order(client: httpx2.Client, folder: Path) -> None:
    customers = [("bob", "eve", "kim")[number % 3] for number in range(_ORDERS)]
    numbers: dict[str, list[int]] = {}
    for customer in customers:
        path = f"/orders/{uuid.uuid4()}?currency=CHF"
        body = {"customer": customer, "cents": 100}
        first, again = (_put(client, path, json=body, headers=_ANN).json()["order"] for _ in range(2))
        assert first == again
        numbers.setdefault(customer, []).append(first)

    eventually(lambda: len(_mails(folder)) >= _ORDERS, "a mail for each order", within=_PATIENCE)
    eventually(lambda: len(_read_bookings(folder)) == _ORDERS, "each order in the ledger", within=_PATIENCE)
    assert sorted(_mails(folder)) == sorted(f"Your order {number}" for each in numbers.values() for number in each)
    for customer, expected in numbers.items():
        assert [number for who, number in _read_bookings(folder) if who == customer] == expected


def _a_photo_gets_a_thumbnail(client: httpx2.Client, folder: Path) -> None:
    photo = BytesIO()
    Image.new("RGB", (400, 200)).save(photo, "PNG")
    key = uuid.uuid4()

    _put(client, f"/photos/{key}", content=photo.getvalue(), headers=_ANN)
    ended = _wait_for_end(client, key)

    assert ended["state"] == "succeeded", ended
    with Image.open(folder / "data" / ended["file"]) as small:
        assert small.size == (128, 64)


def _an_export_shows_how_far_it_is_and_another_is_cancelled(client: httpx2.Client, folder: Path) -> None:
    kept, cancelled = uuid.uuid4(), uuid.uuid4()
    with closing(sqlite3.connect(folder / "data" / "shop.db")) as db, db:
        db.execute("UPDATE orders SET day = '2025-05-05'")
        # Minutes of work for Ben.
        db.executemany("INSERT INTO orders (seller, day) VALUES ('ben', '2025-05-05')", [[]] * 9_000)
    for key, who in ((kept, _ANN), (cancelled, _BEN)):
        _put(client, f"/exports/{key}", params={"year": "2025"}, headers=who)

    eventually(lambda: _look(client, cancelled, _BEN).get("done"), "an export that runs", within=_PATIENCE)
    assert _look(client, cancelled, _ANN)["state"] == "queued"
    client.delete(f"/jobs/{cancelled}", headers=_ANN)
    assert _look(client, cancelled, _BEN)["state"] == "running"
    client.delete(f"/jobs/{cancelled}", headers=_BEN)

    assert _wait_for_end(client, cancelled, _BEN)["state"] == "cancelled"
    assert _wait_for_end(client, kept) == {"state": "succeeded", "file": "ann-2025.csv"}
    assert len((folder / "data" / "ann-2025.csv").read_text().splitlines()) == _ORDERS + 1


def _the_night_has_one_report(folder: Path, env: dict[str, str]) -> None:
    yesterday = datetime.now(ZoneInfo("Europe/Paris")).date() - timedelta(days=1)
    with closing(sqlite3.connect(folder / "data" / "shop.db")) as db, db:
        db.execute("UPDATE orders SET day = ? WHERE seller = 'ann'", [yesterday.isoformat()])

    assert run_here(folder, "schedule", "run", "shop.nightly", env=env).code == 0

    wanted = f"{_ORDERS} orders on {yesterday}: {_ORDERS * 0.5:.2f} EUR"
    eventually(lambda: wanted in _mails(folder), wanted, within=_PATIENCE)
    assert len(_mails(folder)) == _ORDERS + 1


def _the_bank_was_called_at_its_rate(calls: list[float]) -> None:
    assert len(calls) == _ORDERS
    assert max(calls) - min(calls) >= _LEAST_SECONDS


def _put(client: httpx2.Client, path: str, **request: Any) -> httpx2.Response:
    """Repeat a request until it gets an answer, as the browser does."""

    def answer() -> httpx2.Response | None:
        found = client.put(path, **request)
        return None if found.status_code == httpx2.codes.SERVICE_UNAVAILABLE else found

    found = eventually(answer, f"an answer to PUT {path}", within=_PATIENCE)
    assert found is not None
    assert found.is_success, found.text
    return found


def _mails(folder: Path) -> list[str]:
    return [str(mail["Subject"]) for mail in mailbox.Maildir(folder / "data" / "mail")]


def _read_bookings(folder: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(folder / "data" / "shop.db")) as db:
        return db.execute("SELECT customer, number FROM ledger ORDER BY place").fetchall()


def _look(client: httpx2.Client, key: uuid.UUID, who: dict[str, str] = _ANN) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/jobs/{key}", headers=who).json()
    return found


def _wait_for_end(client: httpx2.Client, key: uuid.UUID, who: dict[str, str] = _ANN) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = _look(client, key, who)
        return {name: found[name] for name in ("state", "file") if name in found} if _is_final(found) else None

    return eventually(look, "the end of the job", within=_PATIENCE) or {}


def _is_final(job: dict[str, Any]) -> bool:
    return job["state"] in {"succeeded", "failed", "cancelled"}
