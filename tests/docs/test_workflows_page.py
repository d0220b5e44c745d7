"""The examples of `docs/workflows.md`, run as the page says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Started, run_here
from tests.docs.blocks import ROOT, block_after, blocks_of, write_files

_PAGE = ROOT / "docs" / "workflows.md"


def _output_of(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_run_and_an_approval_work_as_described(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "approvals:app") as worker, Started(tmp_path, "scheduler", "approvals:app"):
        worker.says("waiting for jobs")
        assert _output_of(tmp_path, "first_run.py") == block_after(_PAGE, "first_run.py").text
        assert _output_of(tmp_path, "approvals.py") == "spring is public: nice\n"


@pytest.mark.nightly("tests/docs/test_workflows_page.py::test_the_first_run_and_an_approval_work_as_described")
@pytest.mark.slow
def test_every_example_on_the_page_works_as_described(tmp_path: Path) -> None:
    names = write_files(_PAGE, tmp_path)
    assert names == {
        "gallery.py",
        "first_run.py",
        "send_gallery.py",
        "send_graph.py",
        "mend_gallery.py",
        "batch_gallery.py",
        "albums.py",
        "exports.py",
        "approvals.py",
    }
    assert all(block.file_name or block.language in ("console", "text") for block in blocks_of(_PAGE))

    with Started(tmp_path, "worker", "approvals:app") as worker, Started(tmp_path, "scheduler", "approvals:app"):
        worker.says("waiting for jobs")
        assert _output_of(tmp_path, "first_run.py") == block_after(_PAGE, "first_run.py").text
        command = ("--app", "gallery:app", "run")
        (run,) = run_here(tmp_path, *command, "list", "-o", "json").data
        assert "announce" in run_here(tmp_path, *command, "steps", run["run_id"]).out
        for name in ("send_gallery.py", "send_graph.py", "albums.py"):
            assert _output_of(tmp_path, name) == block_after(_PAGE, name).text
        assert _output_of(tmp_path, "exports.py") == ""
        assert _output_of(tmp_path, "approvals.py") == "spring is public: nice\n"
        assert _output_of(tmp_path, "batch_gallery.py") == "[128, 256, 384]\n"
        mended = _output_of(tmp_path, "mend_gallery.py").splitlines()

    assert mended[:2] == ["{'upload': 'OSError: a.jpg does not fit'}", "2 steps run again"]
    # It may have failed once more before it was cancelled.
    assert mended[2].split()[0] in ("True", "False")
