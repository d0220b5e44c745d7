"""Expressions as other crons read them: the same instants, or a difference that docs/cron.md names."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from taskmq.errors import InvalidOption
from taskmq.schedules.triggers import Cron, instants_after

pytestmark = pytest.mark.simulation

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AFTER = 1_767_225_600_000
_TABLE = Path(__file__).parent / "peers.tsv"
_PAGE = Path(__file__).parents[4] / "docs" / "cron.md"
_REFUSED = {"refused", "none"}


def _facts() -> list[tuple[str, str, str]]:
    """Return expression, peer, and the peer's instants."""
    lines = [line.split("\t") for line in _TABLE.read_text().splitlines() if not line.startswith("#")]
    return [(expression, peer, says) for expression, peers, says in lines for peer in peers.split(",")]


def _has(pattern: str) -> Callable[[str, str], bool]:
    found = re.compile(pattern, re.IGNORECASE)
    return lambda expression, _: any(found.search(field) for field in expression.split())


def _both_days(expression: str, _: str) -> bool:
    fields = expression.split()
    return fields[2] != "*" and fields[4] != "*"


# The rows of the table "Beside other crons": the peers that differ, and the expressions.
DIFFERENCES: dict[str, tuple[set[str], Callable[[str, str], bool]]] = {
    "`*/2 * MON`": (
        {"croniter", "robfig"},
        lambda expression, peer: _both_days(expression, peer) and _has(r"^\*/")(expression, peer),
    ),
    "`20,* * MON`": (
        {"croniter", "robfig"},
        lambda expression, peer: _both_days(expression, peer) and _has(r",\*")(expression, peer),
    ),
    "`5-5`": ({"croniter", "cronsim"}, _has(r"(^|,)(\w+)-\2(,|/|$)|7-0")),
    "`22-2`": ({"cronie", "cronsim", "robfig"}, _has(r"\w-\w")),
    "`5/15`": ({"cronie", "cronsim", "robfig"}, _has(r"(^|,)\w+/")),
    "`7`": ({"robfig"}, lambda expression, _: "7" in expression.split()[4]),
    "`?`": ({"cronie", "cronsim", "robfig"}, _has(r"\?")),
    "`L` `15W` `5#2` `H`": ({"cronie", "cronsim", "croniter", "robfig"}, _has(r"l|w\d|\dw|#|h|r/")),
    "`15 * 5#2`": ({"croniter", "cronsim"}, lambda expression, _: "#" in expression or "w" in expression.lower()),
    "`*/60`": ({"cronie", "cronsim", "croniter", "robfig"}, _has(r"/(\d\d+|8)")),
}


@pytest.mark.parametrize("peer", ["cronie", "cronsim", "croniter", "robfig"])
def test_each_expression_matches_other_crons_or_differs_for_a_documented_reason(peer: str) -> None:
    unexplained = [
        (expression, says, ours)
        for expression, said_by, says in _facts()
        if said_by == peer and not _agrees(ours := _says(expression), says)
        if not _reasons(expression, peer)
    ]

    assert unexplained == []


def test_every_documented_difference_is_real() -> None:
    met = Counter(
        reason
        for expression, peer, says in _facts()
        if not _agrees(_says(expression), says)
        for reason in _reasons(expression, peer)
    )

    assert set(met) == set(DIFFERENCES)
    section = _PAGE.read_text().split("## Differences from other crons")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")]
    assert set(DIFFERENCES) <= set(rows)


def test_each_of_the_other_crons_reads_most_expressions_alike() -> None:
    facts = _facts()
    same = Counter(peer for expression, peer, says in facts if _agrees(_says(expression), says))

    # Counted when the table was written; fewer would mean that expressions changed their meaning.
    assert same == {"cronie": 336, "cronsim": 355, "croniter": 348, "robfig": 322}


def _reasons(expression: str, peer: str) -> list[str]:
    return [
        reason for reason, (peers, concerns) in DIFFERENCES.items() if peer in peers and concerns(expression, peer)
    ]


def _agrees(ours: str, theirs: str) -> bool:
    return ours == theirs or {ours, theirs} <= _REFUSED


def _says(expression: str) -> str:
    try:
        rule = Cron(expression)
    except InvalidOption:
        return "refused"
    return " ".join(
        (_EPOCH + timedelta(milliseconds=instant)).strftime("%Y-%m-%dT%H:%M")
        for instant in islice(instants_after(rule, _AFTER), 5)
    )
