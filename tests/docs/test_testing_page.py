"""The examples of `docs/testing.md`, run as the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.docs.page_shell import PYTEST

_PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.nightly("tests/unit/testing/test_pytest_plugin.py")
def test_the_tests_on_the_page_pass_with_its_settings(tmp_path: Path) -> None:
    files = {
        "by_hand.py",
        "orders.py",
        "shop.py",
        "test_coroutines.py",
        "test_failures.py",
        "test_nightly.py",
        "test_orders.py",
        "test_reports.py",
        "test_shop.py",
    }
    # Run by tests/integration/test_containers.py.
    need_containers = {"conftest.py", "outage.py", "test_on_servers.py"}
    assert write_files(_PAGE, tmp_path) == files | need_containers
    for name in need_containers:
        (tmp_path / name).unlink()
    (settings,) = [block.text for block in blocks_of(_PAGE) if block.file_name is None]
    (tmp_path / "pyproject.toml").write_text(settings)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASKMQ_", "PYTEST_"))}

    command = [sys.executable, *PYTEST, "-q", "-W", "error"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert "10 passed" in ran.stdout, ran.stdout
    said = subprocess.run(
        [sys.executable, "by_hand.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50
    )
    assert said.stdout == "2026-03-01T10:00:00+00:00 ['thanks for 1 x hat']\n", said.stderr
