"""The example of `docs/tenants.md`, its table, and its commands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.model import keys
from tests.cli.kit import bury, declare, names_in, run_here
from tests.docs.blocks import ROOT, block_after, blocks_of, write_files

_PAGE = ROOT / "docs" / "tenants.md"


def test_the_example_prints_the_output_on_the_page(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    done = subprocess.run(
        [sys.executable, "two_tenants.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout, done.returncode) == (block_after(_PAGE, "two_tenants.py").text, 0), done.stderr


@pytest.mark.parametrize(("tenant", "column"), [("north", 1), (None, 2)])
def test_the_table_has_the_names_in_the_code(tenant: str | None, column: int) -> None:
    _, header, table = _PAGE.read_text().partition("| what | with ")
    first = (header + table).partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in first.splitlines() if line.startswith("| ")][1:]
    written = [match[1] for row in rows if (match := re.match(r"`(.*?)`", row[column]))]

    assert written == [
        keys.once_key("charge", "order:17", tenant=tenant),
        keys.unique_key("charge", "17", tenant=tenant),
        keys.limit_key("api", "17", tenant=tenant),
        keys.tenant_key(tenant, "17"),
    ]


def test_the_commands_give_a_user_a_role_on_a_tenant(tmp_path: Path) -> None:
    block, *_ = [block for block in blocks_of(_PAGE) if block.commands]
    environment = {"TASKMQ_STORE": f"sqlite:///{tmp_path}/jobs.db"}

    told = ""
    for command in block.commands:
        done = run_here(tmp_path, *shlex.split(command)[1:], env=environment, text="ostrich lamp violet nine\n")
        assert done.code == 0, (command, done.err)
        told = done.out

    assert "north   ann   submitter  billing.*" in told


def test_the_commands_replay_and_purge_the_letters_of_one_tenant(tmp_path: Path) -> None:
    *_, block = [block for block in blocks_of(_PAGE) if block.commands]
    url = f"local://{tmp_path}/broker"
    declare("billing", url=url)
    for tenant in ("north", "south"):
        bury("billing.dlq", [tenant], tenant=tenant, url=url)

    said = [run_here(tmp_path, *shlex.split(command)[1:], "--url", url) for command in block.commands]

    assert "north" in said[0].out
    assert "south" not in said[0].out
    assert (said[1].err, said[2].err.splitlines()[-1]) == ("1 replayed\n", "0 dead letters deleted")
    assert names_in("billing.dlq", url=url) == ["south"]
