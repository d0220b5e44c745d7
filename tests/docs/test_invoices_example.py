"""The invoicing service of docs/examples/invoices: its own tests, and an archive without its Redis."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import PATIENCE, Started, environment, run_here
from tests.docs.blocks import ROOT
from tests.docs.page_shell import PYTEST
from tests.docs.serving import uvicorn
from tests.servers import Redis, eventually

_INVOICES = ROOT / "docs" / "examples" / "invoices"
_ACME = {"X-Tenant": "acme"}


def _copy_example(folder: Path) -> Path:
    there = folder / "invoices"
    shutil.copytree(_INVOICES, there, ignore=shutil.ignore_patterns("__pycache__"))
    return there


def _run_tests(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *PYTEST, "-q"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    return done.stdout + done.stderr


@pytest.mark.nightly("tests/docs/test_shop_example.py::test_the_tests_of_the_example_pass")
def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    assert "5 passed" in (said := _run_tests(_copy_example(tmp_path))), said


@pytest.mark.nightly("tests/docs/test_shop_example.py::test_the_tests_of_the_example_pass")
def test_the_tests_of_the_example_fail_for_two_typical_mistakes(tmp_path: Path) -> None:
    folder = _copy_example(tmp_path)
    web, tasks = folder / "web.py", folder / "invoices.py"
    web.write_text(web.read_text().replace("connection=session", "connection=None"))
    tasks.write_text(tasks.read_text().replace("await ctx.acheckpoint(done)", "pass"))

    said = _run_tests(folder)

    assert "test_an_invoice_that_is_refused_leaves_neither_a_row_nor_a_job" in said, said
    assert "test_the_archive_goes_on_where_it_was" in said
    assert "test_an_archive_that_has_failed_goes_on_under_its_id" in said
    assert "3 failed" in said


_GATED = """
import asyncio
from pathlib import Path

import invoices
from invoices import app

_send_page = invoices.send_page


async def _send_or_wait(number: int) -> None:
    while number == 20 and not Path("open").exists():
        await asyncio.sleep(0.01)
    await _send_page(number)
    with Path("sent").open("a") as sent:
        print(number, file=sent)


invoices.send_page = _send_or_wait
"""


@pytest.mark.nightly(
    "tests/integration/test_outages.py::test_a_stored_job_survives_a_redis_outage_and_resumes_at_its_checkpoint"
)
@pytest.mark.rabbitmq
@pytest.mark.timeout(180)
def test_an_archive_continues_while_redis_is_unavailable(tmp_path: Path, amqp_url: str, job_store_url: str) -> None:
    folder = _copy_example(tmp_path)
    (folder / "gated.py").write_text(_GATED)
    with Redis() as redis:
        env = {
            "TASKMQ_APP": "gated:app",
            "TASKMQ_URL": amqp_url,
            "TASKMQ_STATE": redis.url,
            "TASKMQ_STORE": job_store_url,
            "INVOICES_DATABASE": f"sqlite+aiosqlite:///{folder}/invoices.db",
        }
        make_tables = "import asyncio, invoices; asyncio.run(invoices.make_tables())"
        subprocess.run([sys.executable, "-c", make_tables], cwd=folder, env=environment(**env), check=True)
        with (
            uvicorn(folder, "web:web", env=env) as client,
            Started(folder, "scheduler", env=env),
            Started(folder, "worker", env=env),
        ):
            assert client.put("/archive/2026", headers=_ACME).status_code == 202
            eventually(lambda: _sent_pages(folder)[-1:] == [19], "19 pages", within=PATIENCE)
            redis.stop()
            (folder / "open").touch()
            eventually(
                lambda: client.get("/archive/2026", headers=_ACME).json() == {"state": "succeeded"},
                "the end of the archive",
                within=PATIENCE,
            )

        shown = run_here(folder, "job", "show", "archive-2026", "--tenant", "acme", "-o", "json", env=env).data
        assert _sent_pages(folder) == [*range(1, 41)]
        assert shown["attempt"] == 1


def _sent_pages(folder: Path) -> list[int]:
    ledger = folder / "sent"
    return [int(number) for number in ledger.read_text().split()] if ledger.exists() else []
