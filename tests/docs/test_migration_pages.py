"""Workflows on pages that bring their own tests: those translated from other systems, and further examples."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, write_files


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("airflow.md", {"nightly_report.py", "test_nightly_report.py"}),
        ("temporal.md", {"orders.py", "test_orders.py"}),
        ("workflow-examples.md", {"crawler.py", "test_crawler.py", "agent.py", "test_agent.py"}),
    ],
)
def test_the_workflows_of_a_page_pass_its_tests(page: str, names: set[str], tmp_path: Path) -> None:
    assert write_files(ROOT / "docs" / page, tmp_path) == names

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
