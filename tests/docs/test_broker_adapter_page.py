"""docs/broker-adapter.md: the package on the page is a broker, and passes the suite."""

import subprocess
import sys
from pathlib import Path

import pytest

import taskmq.contracts.broker_abilities
import taskmq.contracts.jobs
import taskmq.contracts.stores
from tests.docs.blocks import ROOT, write_files
from tests.docs.page_shell import PYTEST
from tests.house.tree import public_names

_PAGE = ROOT / "docs" / "broker-adapter.md"


@pytest.mark.nightly("tests/docs/test_broker_adapter_page.py::test_the_names_on_the_page_exist")
@pytest.mark.timeout(120)
def test_the_broker_on_the_page_passes_the_settling_tests_of_the_suite(tmp_path: Path) -> None:
    assert write_files(_PAGE, tmp_path) == {"mail_broker.py", "test_mail_broker.py", "conftest.py"}

    command = [sys.executable, *PYTEST, "-q", "-k", "requeue", "test_mail_broker.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_names_on_the_page_exist() -> None:
    text = _PAGE.read_text()

    optional = {"PublishingMany", "Broadcasting", "Listening", "Archiving", "Deleting", "Diagnosable", "Revocable"}
    assert {name for name in {*optional, "TimeLimited"} if f"`{name}`" not in text} == set()
    assert {*optional, "TimeLimited"} <= set(public_names(taskmq.contracts.broker_abilities))
    assert {"State", "Coordinator"} <= set(taskmq.contracts.stores.__all__)
    assert "JobStore" in taskmq.contracts.jobs.__all__
    from taskmq.testing.job_store_suite import JobStoreSuite
    from taskmq.testing.state_suite import StateSuite

    assert f"{StateSuite.__module__.split('.')[2]}.StateSuite" in text
    assert f"{JobStoreSuite.__module__.split('.')[2]}.JobStoreSuite" in text
