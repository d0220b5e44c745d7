"""Workflows on pages that bring their own tests: those translated from other systems, and further examples."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import ROOT, write_files
from tests.docs.page_shell import PYTEST

_FILES: Final = {
    "airflow.md": {"nightly_report.py", "test_nightly_report.py"},
    "temporal.md": {"orders.py", "test_orders.py"},
    "workflow-examples.md": {"crawler.py", "test_crawler.py", "agent.py", "test_agent.py"},
}


@pytest.mark.nightly("tests/docs/test_workflows_page.py::test_the_first_run_and_an_approval_work_as_described")
def test_the_workflows_of_the_pages_pass_their_tests(tmp_path: Path) -> None:
    for page, names in _FILES.items():
        assert write_files(ROOT / "docs" / page, tmp_path) == names
    files = sorted(path.name for path in tmp_path.glob("test_*.py"))

    done = subprocess.run(
        [sys.executable, *PYTEST, "--verbose"], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name in files if f"{name}::" not in done.stdout] == []
