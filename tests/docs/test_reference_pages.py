"""Reference tables match the code, and the first examples of errors and commands run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.cli import run
from taskmq.client.settings import OTHER_VARIABLES, Settings
from tests.docs.blocks import write_files
from tests.docs.reference_pages import ERRORS, TABLES, fill_page
from tests.house.tree import FOLDERS, ROOT


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_generated_from_the_code(name: str) -> None:
    page, text = fill_page(name)

    assert f"<!-- end of {name} -->" in page.read_text()
    assert text == page.read_text(), "run: python -m tests.docs.reference_pages"
    rows = TABLES[name][1]().splitlines()[2:]
    assert rows
    assert [row for row in rows if row.split("|")[2].strip() in {"", "None"}] == []


def test_the_example_of_errors_prints_the_output_on_the_page(tmp_path: Path) -> None:
    assert write_files(ERRORS, tmp_path) == {"careful.py"}

    done = subprocess.run([sys.executable, "careful.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ERRORS.read_text()


def test_the_first_command_on_the_page_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dlq", "--help"]) == 0

    assert "replay" in capsys.readouterr().out


def test_each_variable_that_the_code_reads_is_in_a_table() -> None:
    read = {
        name
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'"(TASKMQ_[A-Z_]*[A-Z])"', path.read_text())
    }

    settings = {f"TASKMQ_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert read <= settings | set(OTHER_VARIABLES)
    assert set(OTHER_VARIABLES) <= read
