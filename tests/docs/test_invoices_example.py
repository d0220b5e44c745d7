"""The invoicing service of docs/examples/invoices, by its own tests."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.kit import environment
from tests.docs.blocks import ROOT
from tests.docs.page_shell import PYTEST

_INVOICES = ROOT / "docs" / "examples" / "invoices"


def _copied(folder: Path) -> Path:
    there = folder / "invoices"
    shutil.copytree(_INVOICES, there, ignore=shutil.ignore_patterns("__pycache__"))
    return there


def _tested(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *PYTEST, "-q"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    return done.stdout + done.stderr


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    assert "4 passed" in (said := _tested(_copied(tmp_path))), said


def test_they_fail_for_a_job_outside_of_the_transaction_and_for_one_that_forgets(tmp_path: Path) -> None:
    folder = _copied(tmp_path)
    web, tasks = folder / "web.py", folder / "invoices.py"
    web.write_text(web.read_text().replace("connection=session", "connection=None"))
    tasks.write_text(tasks.read_text().replace("await ctx.acheckpoint(done)", "pass"))

    said = _tested(folder)

    assert "test_an_invoice_that_is_refused_leaves_neither_a_row_nor_a_job" in said, said
    assert "test_the_archive_goes_on_where_it_was" in said
    assert "2 failed" in said
