"""The Python of `docs/store.md`, run as one program, and what it says of definitions."""

import subprocess
import sys
from pathlib import Path

from taskmq.model.jobs.call_schemas import flaw_of
from taskmq.model.jobs.registrations import decode_told
from tests.docs.blocks import ROOT, blocks_of

_STORE = ROOT / "docs" / "store.md"
_WIRE = ROOT / "docs" / "wire.md"
_CHECKS = """
records = app.jobs.list().jobs
print(len(records), sorted((one.priority, one.detail.definition_version) for one in records if one.detail))
print([one.version for one in app.definitions.versions("monthly-eu")], app.definitions.list().definitions)
"""


def test_the_python_of_the_page_runs_and_definitions_do_what_it_says(tmp_path: Path) -> None:
    program = "\n".join(block.text for block in blocks_of(_STORE) if block.language == "python")

    done = subprocess.run(
        [sys.executable, "-c", program + _CHECKS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("8 [(3, 1), (4, 0), (4, 0), (4, 0), (4, 0), (8, 1)]\n[2, 1] []\n", "")


def test_the_tasks_that_are_reported_on_the_page_are_taken_as_they_stand() -> None:
    (body,) = [block.text for block in blocks_of(_WIRE) if '"tasks"' in block.text]

    (task,) = decode_told(body.encode()).tasks

    assert flaw_of(task) == ""
    assert (task.task, task.positional) == ("shop.report", ("month",))
