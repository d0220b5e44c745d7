"""`docs/store-adapter.md`: it names every method of the contract, and its example passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.contracts.jobs import DispatchStore, JobStore, RunStore
from tests.docs.blocks import ROOT, write_files
from tests.docs.page_shell import PYTEST

_PAGE = ROOT / "docs" / "store-adapter.md"


def test_every_method_of_the_contract_is_on_the_page() -> None:
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", _PAGE.read_text()))))
    methods = {
        name
        for contract in (JobStore, DispatchStore, RunStore)
        for name in vars(contract)
        if not name.startswith("_")
    }

    assert methods - named <= {"address", "dispatching", "partitions"}


@pytest.mark.nightly("tests/docs/test_store_adapter_page.py::test_every_method_of_the_contract_is_on_the_page")
def test_the_example_passes(tmp_path: Path) -> None:
    assert write_files(_PAGE, tmp_path) == {"test_my_store.py"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASKMQ_", "PYTEST_"))}

    command = [sys.executable, *PYTEST, "-q", "-W", "error", "-k", "superseded"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False
    )

    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
