"""The examples of `docs/schedules.md`, `docs/cron.md` and `docs/reactions.md`."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.schedules.triggers import Cron
from tests.cli.kit import run_here
from tests.docs.blocks import ROOT, block_after, blocks_of, write_files

_PAGE = ROOT / "docs" / "schedules.md"
_RULES = ROOT / "docs" / "cron.md"
_REACTIONS = ROOT / "docs" / "reactions.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(_PAGE, tmp_path)
    write_files(_REACTIONS, tmp_path)
    return tmp_path


def test_the_rules_on_the_page_are_listed(folder: Path) -> None:
    listed = run_here(folder, "--app", "shop:app", "-o", "json", "schedule", "list")

    assert listed.code == 0, listed.err
    rules = {row["name"]: row["rule"] for row in listed.data}
    assert rules.keys() == {"shop.report", "shop.poll", "shop.survey", "shop.campaign"}
    assert rules["shop.report"] == "at 02:30 every day, Europe/Paris time"
    assert rules["shop.survey"].endswith(
        "past every hour from 09:00 to 17:59 on Monday to Friday, America/New_York time, "
        "except on 4 July, 25 December and 2026-11-26"
    )


def test_the_page_shows_the_output_of_the_command(folder: Path) -> None:
    block = block_after(_PAGE, "shop.py")
    (line,) = block.commands

    printed = run_here(folder, *shlex.split(line)[1:])

    assert printed.code == 0, printed.err
    assert printed.out == block.output


def test_the_migrated_configuration_is_imported(folder: Path) -> None:
    listed = run_here(folder, "--app", "migrated:app", "-o", "json", "schedule", "list")

    assert listed.code == 0, listed.err
    (row,) = listed.data
    assert (row["name"], row["starts"]) == ("europe", "reports.send")
    assert row["rule"] == "at 07:30 on Monday to Friday, Europe/Paris time"


def test_each_notation_of_a_field_on_the_page_is_accepted() -> None:
    fields = {
        "*": 0, "1,15": 2, "9-17": 1, "22-2": 1, "*/5": 0, "10-50/20": 0, "MON-FRI": 4, "jan": 3, "L": 2, "15W": 2,
        "5#2": 4, "L5": 4, "H": 2, "H(0-5)": 1, "H/15": 0,
    }  # fmt: skip
    text = _RULES.read_text()

    for written, place in fields.items():
        assert f"`{written}`" in text
        parts = ["0", "0", "*", "*", "*"]
        parts[place] = written
        assert Cron(" ".join(parts)).next_after(0) is not None
    for alias in ("@yearly", "@monthly", "@weekly", "@daily", "@hourly"):
        assert f"`{alias}`" in text
        assert Cron(alias).next_after(0) is not None


def test_schedules_are_created_changed_and_removed_as_the_page_says(folder: Path) -> None:
    ran = subprocess.run([sys.executable, "making.py"], cwd=folder, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr


def test_the_commands_that_change_schedules_work_unchanged(folder: Path) -> None:
    commands = [line for block in blocks_of(_PAGE) for line in block.commands if "nightly:app" in line]
    assert len(commands) == 7

    for line in commands:
        printed = run_here(folder, *shlex.split(line)[1:])
        assert printed.code == 0, f"{line}: {printed.err}"


def test_schedules_of_a_store_are_created_as_the_page_says(folder: Path) -> None:
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", "import stored, tenants"], cwd=folder, capture_output=True, text=True, check=False
        )

        assert ran.returncode == 0, ran.stderr


def test_reactions_of_a_task_are_explained_as_the_page_shows(folder: Path) -> None:
    block = block_after(_REACTIONS, "inbox.py")
    (line,) = block.commands

    printed = run_here(folder, *shlex.split(line)[1:])

    assert printed.code == 0, printed.err
    assert printed.out == block.output


def test_reactions_of_the_tasks_on_the_page_are_listed(folder: Path) -> None:
    listed = run_here(folder, "--app", "inbox:app", "-o", "json", "schedule", "list")

    assert listed.code == 0, listed.err
    rules = {row["name"]: row["rule"] for row in listed.data}
    assert rules == {
        "load": "when a file /srv/in/*.csv has arrived, with its .done file",
        "tidy": "when a job of load has ended succeeded or failed",
        "warn": "when a run of nightly* has ended failed or cancelled",
        "order": "when a message orders.*.new or orders.#.changed has arrived over sales",
        "publish": (
            "when a file /srv/in/prices.csv has arrived, unchanged for 30 s and (a job of load has succeeded or a "
            "message go has arrived over amq.topic) and it is due at 06:00 every day, UTC"
        ),
        "reindex": (
            "when a message stock.# has arrived over amq.topic or a message price.# has arrived over amq.topic, and "
            "nothing more for 10 s"
        ),
    }


def test_the_status_of_a_pending_reaction_is_explained(folder: Path) -> None:
    explained = run_here(folder, "--app", "inbox:app", "-o", "json", "schedule", "explain", "publish")

    assert explained.code == 0, explained.err
    assert explained.data["queues"] == ["taskmq.on.shop.publish.2"]
    assert [one["is_met"] for one in explained.data["conditions"]] == [False] * len(explained.data["conditions"])
    assert (explained.data["fired"], explained.data["waiting"]) == (0, 0)


def test_every_block_of_the_pages_is_run() -> None:
    blocks = [*blocks_of(_PAGE), *blocks_of(_REACTIONS)]
    named = {block.file_name for block in blocks if block.language == "python"}

    assert {"shop.py", "migrated.py", "nightly.py", "making.py", "inbox.py", "stored.py", "tenants.py"} == named
    assert None not in named
