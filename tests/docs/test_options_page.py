"""docs/options.md matches the code, and each option has a description."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.cli import run
from taskmq.options.plans import plan_task
from taskmq.options.task_options import TaskOptions
from tests.docs.blocks import write_files
from tests.docs.options_page import PAGE, fill_tables, tables


def test_the_tables_are_generated_from_the_code() -> None:
    written = PAGE.read_text()

    assert fill_tables(written, tables()) == written, "run: python -m tests.docs.options_page"


@pytest.mark.parametrize("name", tables())
def test_each_option_has_values_a_default_and_a_text(name: str) -> None:
    head, _, *rows = tables()[name].splitlines()

    assert rows
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row.strip("|"))
        assert len(cells) == head.count("|") - 1, row
        assert all(cell.strip() for cell in cells), row


def test_the_reported_defaults_of_a_task_are_its_actual_ones() -> None:
    """A default written in the docstring is passed, and changes nothing."""
    plain = plan_task({}, function="f", default_name="m.f", is_async=False)
    told = re.findall(r"^\| `(\w+)` \| [^|]* \| `(\w+)` \|", tables()["task"], re.MULTILINE)
    literal = {name: value for name, value in told if name in {"ack", "executor"}}

    assert literal == {"ack": "late", "executor": "auto"}
    assert plan_task(literal, function="f", default_name="m.f", is_async=False) == plain
    assert {name for name, _ in told} <= TaskOptions.__annotations__.keys()


def test_the_example_runs(tmp_path: Path) -> None:
    assert write_files(PAGE, tmp_path) == {"shop.py"}

    done = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_of_a_worker_shows_the_defaults_that_settings_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    run(["worker", "--help"])

    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, default in (("CONCURRENCY", "32"), ("GRACE", "30s"), ("PROCESSES", "1")):
        assert f"Default: $TASKMQ_{name}, else {default}." in shown, name
