"""Each row of docs/requirements.md that names tests names some that are there."""

import re

import pytest

from tests.docs.blocks import ROOT

_ROW = re.compile(r"^\| ((?:[A-Z]\d\d(?:, )?)+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`((?:tests|taskmq)/[\w/]+\.py)::(\w+)`")
_ROWS = _ROW.findall((ROOT / "docs" / "requirements.md").read_text())


def test_no_row_is_there_twice() -> None:
    names = [name for row, _, _ in _ROWS for name in row.split(", ")]

    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize(("row", "what", "shown"), _ROWS, ids=[row for row, _, _ in _ROWS])
def test_a_row_names_tests_that_are_there_or_a_page(row: str, what: str, shown: str) -> None:
    tests = _TEST.findall(shown)

    assert tests or "](" in shown, (row, what)
    for path, name in tests:
        assert re.search(rf"^\s*(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
