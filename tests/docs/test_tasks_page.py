"""The examples of `docs/tasks.md`, run as the page says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Started
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.docs.page_shell import PYTEST

_PAGE = ROOT / "docs" / "tasks.md"


def _output_of(folder: Path, *command: str) -> list[str]:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_on_the_page_is_a_file(tmp_path: Path) -> None:
    assert write_files(_PAGE, tmp_path) == {
        "audit.py",
        "call_audit.py",
        "call_imports.py",
        "call_orders.py",
        "call_shop.py",
        "call_sizes.py",
        "follow_up.py",
        "imports.py",
        "orders.py",
        "shop/app.py",
        "shop/mails.py",
        "shop/orders.py",
        "sizes.py",
        "test_follow_up.py",
        "test_orders.py",
        "watch_imports.py",
    }
    assert all(block.file_name for block in blocks_of(_PAGE))


@pytest.mark.slow
def test_a_worker_has_the_tasks_of_all_modules_that_the_app_includes(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "shop.app:app") as worker:
        worker.says("tasks   shop.mails.confirm, shop.orders.place")

        assert _output_of(tmp_path, "call_shop.py") == ["order 7 is confirmed"]


@pytest.mark.nightly("tests/docs/test_tasks_page.py::test_steps_run_once_and_a_loop_resumes_where_it_was")
@pytest.mark.slow
def test_a_sent_value_arrives_equal_or_is_refused(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "sizes:app") as worker:
        worker.says("waiting for jobs")
        result, refused = _output_of(tmp_path, "call_sizes.py")

    assert result == "{1: 'ada', 2: 'ada'}"
    assert refused.startswith("task sizes.order: argument 'share': ")
    assert "JSON has no NaN and no infinity" in refused


@pytest.mark.slow
def test_steps_run_once_and_a_loop_resumes_where_it_was(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "imports:app") as worker:
        worker.says("waiting for jobs")
        total, progress, renumbered = _output_of(tmp_path, "call_imports.py")

        events = [line for line in _output_of(tmp_path, "watch_imports.py") if line]

    assert events[-2:] == ["event: end", 'data: {"state":"succeeded","attempts":2,"result":10}']
    assert "event: progress" in events
    assert total == "10"
    assert progress.startswith("JobProgress(done=2")
    assert "note='stored', attempt=2" in progress
    assert renumbered == "[200, 300]"
    printed = worker.said.splitlines()
    assert [line for line in printed if line.startswith(("downloading", "storing"))] == [
        "downloading summer-sale",
        "storing [6, 4]",
        "downloading winter-sale",
        "storing [6, 4]",
    ]


@pytest.mark.nightly("tests/docs/test_tasks_page.py::test_steps_run_once_and_a_loop_resumes_where_it_was")
def test_dependencies_are_opened_and_closed(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "orders:app") as worker:
        worker.says("waiting for jobs")
        assert _output_of(tmp_path, "call_orders.py") == ["1 2", "True False"]

    printed = worker.said.splitlines()
    assert [line for line in printed if "warehouse" in line] == ["opening the warehouse", "closing the warehouse"]


@pytest.mark.nightly("tests/docs/test_tasks_page.py::test_steps_run_once_and_a_loop_resumes_where_it_was")
def test_dependencies_are_replaced_and_tasks_sleep_and_wait_in_tests(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    printed = _output_of(tmp_path, *PYTEST, "--verbose", "test_orders.py", "test_follow_up.py")

    assert len([line for line in printed if line.startswith("test_orders.py::") and "PASSED" in line]) == 1
    assert len([line for line in printed if line.startswith("test_follow_up.py::") and "PASSED" in line]) == 2
    assert "3 passed" in printed[-1]


@pytest.mark.nightly("tests/docs/test_tasks_page.py::test_steps_run_once_and_a_loop_resumes_where_it_was")
def test_log_lines_name_their_job(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "audit:app") as worker:
        worker.says("waiting for jobs")
        assert _output_of(tmp_path, "call_audit.py") == ["Ada"]

    expected = "INFO audit.sign attempt=1 queue=default: signed by Ada"
    assert (tmp_path / "audit.log").read_text().splitlines() == [expected]
    assert f"`{expected}`" in _PAGE.read_text()
