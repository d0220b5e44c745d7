"""The examples and tables of `docs/operations.md`, `docs/settings.md` and `docs/metrics.md`."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from taskmq.client.settings import Settings
from tests.cli.kit import Started, bury, declare, run_here
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.docs.telemetry_tables import METRIC_TABLES
from tests.servers.ports import PortLease

PAGE = ROOT / "docs" / "operations.md"
_SETTINGS = ROOT / "docs" / "settings.md"
_METRICS = ROOT / "docs" / "metrics.md"
_SHOP = """\
from taskmq import TaskMQ

app = TaskMQ("local://broker", store="sqlite:///jobs.db")


@app.task(name="resize", queue="images")
def resize(number: int) -> None: ...
"""


@pytest.fixture
def port() -> Iterator[str]:
    with PortLease(1) as lease:
        yield str(lease.ports[0])


def _commands(language: str) -> list[str]:
    return [command for block in blocks_of(PAGE) if block.language == language for command in block.commands]


@pytest.mark.nightly("tests/docs/test_operations.py::test_the_command_of_the_systemd_unit_is_valid")
def test_the_workers_and_the_probes_on_the_page_behave_as_described(tmp_path: Path, port: str) -> None:
    write_files(PAGE, tmp_path)
    commands = [command.replace("9464", port) for command in _commands("console")]
    workers = [command for command in commands if command.startswith("taskmq worker")]
    probes = [command for command in commands if command.startswith("taskmq probe")]
    assert (len(workers), len(probes)) == (2, 2)

    for command in workers:
        with Started(tmp_path, *shlex.split(command)[1:]) as worker:
            worker.says("waiting for jobs")
            for probe in probes:
                done = run_here(tmp_path, *shlex.split(probe)[1:])
                assert done.code == 0, done.err


def test_the_operator_commands_on_the_page_behave_as_described(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    (tmp_path / "taskmq.toml").write_text('url = "local://.taskmq"\n')
    nouns = ("queue", "job", "workflow")
    commands = [words for command in _commands("console") if (words := shlex.split(command)) and {*nouns} & {*words}]

    for words in commands:
        done = run_here(tmp_path, *words[1:])
        assert done.code == 0, (words, done.err)


def test_the_command_of_the_systemd_unit_is_valid(tmp_path: Path, port: str) -> None:
    write_files(PAGE, tmp_path)
    (unit,) = [block.text for block in blocks_of(PAGE) if block.language == "ini"]
    (command,) = re.findall(r"^ExecStart=\S+/taskmq (.*)$", unit, re.MULTILINE)

    with Started(tmp_path, *shlex.split(command.replace("9464", port))) as worker:
        worker.says("waiting for jobs")


def test_the_table_of_settings_is_complete() -> None:
    rows = re.findall(r"^\| `TASKMQ_([A-Z_]+)` \| `([a-z_]+)` \|", _SETTINGS.read_text(), re.MULTILINE)

    assert [variable.lower() for variable, _ in rows] == [key for _, key in rows]
    assert {key for _, key in rows} == {field.name for field in fields(Settings)} - {"origin"}


def test_the_modules_on_the_page_can_be_imported(tmp_path: Path) -> None:
    files = write_files(PAGE, tmp_path) | write_files(_METRICS, tmp_path)
    modules = ", ".join(sorted(Path(name).stem for name in files))

    done = subprocess.run(
        [sys.executable, "-c", f"import {modules}; assert all(page.app for page in ({modules},))"],
        cwd=tmp_path,
        capture_output=True,
        timeout=20,
    )

    assert done.returncode == 0, done.stderr


def test_no_metric_has_a_tenant_and_the_page_has_a_figure_per_tenant_for_each() -> None:
    tables = [make() for make in METRIC_TABLES.values()]
    names = {name for table in tables for name in re.findall(r"^\| `(taskmq_\w+)`", table, re.MULTILINE)}
    section = _METRICS.read_text().partition("## Figures of one tenant\n")[2].partition("\n## ")[0]
    told = re.findall(r"`(taskmq_\w+?)(\.\.\.)?`", section)

    assert not any("tenant" in row.split("|")[2] for table in tables for row in table.splitlines() if row)
    prefixes = tuple(name for name, dots in told if dots)
    assert names - {name for name, _ in told} - {name for name in names if name.startswith(prefixes)} == {
        "taskmq_build_info"
    }


def test_the_commands_for_figures_of_one_tenant_answer(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    declare("images", url=f"local://{tmp_path}/broker")
    bury("images.dlq", ["d1"], url=f"local://{tmp_path}/broker", task="resize")
    section = _METRICS.read_text().partition("## Figures of one tenant\n")[2].partition("\n## ")[0]
    commands = [command for command in re.findall(r"`taskmq ([a-z].*?)`", section) if "NAME" not in command]
    assert len(commands) == 5

    for command in commands:
        done = run_here(tmp_path, "--app", "shop:app", *shlex.split(command.replace("QUEUE", "images")))
        assert done.code == 0, (command, done.err)
