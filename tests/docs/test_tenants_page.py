"""The example of `docs/tenants.md`, and its table."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskmq.model import keys
from tests.docs.blocks import ROOT, block_after, write_files

_PAGE = ROOT / "docs" / "tenants.md"


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    write_files(_PAGE, tmp_path)

    done = subprocess.run(
        [sys.executable, "two_tenants.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout, done.returncode) == (block_after(_PAGE, "two_tenants.py").text, 0), done.stderr


@pytest.mark.parametrize(("tenant", "column"), [("north", 1), (None, 2)])
def test_the_table_has_the_names_that_there_are(tenant: str | None, column: int) -> None:
    rows = [line.strip("| ").split(" | ") for line in _PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    written = [match[1] for row in rows if (match := re.match(r"`(.*?)`", row[column]))]

    assert written == [
        keys.once_key("charge", "order:17", tenant=tenant),
        keys.unique_key("charge", "17", tenant=tenant),
        keys.limit_key("api", "17", tenant=tenant),
        keys.tenant_key(tenant, "17"),
    ]
