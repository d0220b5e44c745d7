"""docs/requirements.md: each requirement is listed once with its evidence."""

import re
from collections import Counter

from tests.docs.blocks import ROOT

_PAGE = ROOT / "docs" / "requirements.md"
_HEADS = {"requirement", "call or table", "---"}


def _rows() -> list[tuple[str, str]]:
    """Return the requirements with their evidence; figures are computed below them."""
    shown = _PAGE.read_text().partition("\n## What shows it\n")[2].partition("\n### The documents' figures\n")[0]
    cells: list[tuple[str, str]] = re.findall(r"^\| (.+?) ?\| (.+) \|$", shown, re.MULTILINE)
    return [(requirement, evidence) for requirement, evidence in cells if requirement not in _HEADS]


def test_each_requirement_is_shown_by_a_test_a_page_or_a_command() -> None:
    rows = _rows()

    assert len(rows) > 180
    for requirement, evidence in rows:
        assert re.search(r"`(tests|taskmq)/[\w/.]+|\]\([\w./-]*(\.md|#)|`(python -m|taskmq) ", evidence), requirement


def test_no_requirement_appears_twice() -> None:
    assert [requirement for requirement, count in Counter(name for name, _ in _rows()).items() if count > 1] == []
