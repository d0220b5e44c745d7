"""The contents of the page of results."""

import json
from pathlib import Path

from benchmarks.cell import Cell, number_text, spread_text
from benchmarks.report import plot, write


def _cells() -> list[Cell]:
    return [
        Cell(
            "drain, 1", "quorum", "taskmq", "", runs=[{"tasks_per_second": 60_000.0}, {"tasks_per_second": 50_000.0}]
        ),
        Cell("drain, 1", "quorum", "celery", "", runs=[{"tasks_per_second": 5_000.0}, {"tasks_per_second": 5_000.0}]),
        Cell("drain, 1", "quorum", "taskiq", "", runs=[None, None], failures=["RunFailed: it stopped\nat 3 of 4"]),
        Cell("drain, 1", "redis", "arq", "", runs=[{"tasks_per_second": 2_500.0}, {"tasks_per_second": 2_500.0}]),
    ]


def _page(folder: Path, cells: list[Cell], *, scale: float = 1.0) -> list[str]:
    write(cells, folder, about={"scale": scale})
    return (folder / "results.md").read_text().splitlines()


def test_each_contender_appears_beside_taskmq_with_its_ratio_per_round(tmp_path: Path) -> None:
    lines = _page(tmp_path, _cells())

    assert "| celery | 5,000 (5,000-5,000) | 11 (10-12) |" in lines
    assert "| taskmq | 55,000 (50,000-60,000) |  |" in lines


def test_a_peer_on_redis_appears_beside_taskmq_on_quorum_queues(tmp_path: Path) -> None:
    assert "| arq | 2,500 (2,500-2,500) | 22 (20-24) |" in _page(tmp_path, _cells())


def test_a_failed_contender_says_so_in_its_cell(tmp_path: Path) -> None:
    lines = _page(tmp_path, _cells())

    assert "| taskiq | failed |  |" in lines
    assert "- taskiq failed: RunFailed: it stopped at 3 of 4" in lines


def test_a_table_of_failures_is_still_printed(tmp_path: Path) -> None:
    failed = Cell("fan-out and fan-in", "quorum", "celery", "", runs=[None], failures=["gone"])

    assert "| celery | failed |" in _page(tmp_path, [failed])


def test_the_page_lists_each_goal_and_its_verdict(tmp_path: Path) -> None:
    lines = _page(tmp_path, _cells())

    assert "| drain, 1, quorum | >= 12 x celery | 11 (10-12) | missed |" in lines
    assert "| drain, 1, quorum | >= 12 x taskiq |  | not measured |" in lines


def test_figures_below_full_size_are_marked_as_meaningless(tmp_path: Path) -> None:
    assert not any("only show that the benchmark runs" in line for line in _page(tmp_path, _cells()))
    assert any("only show that the benchmark runs" in line for line in _page(tmp_path, _cells(), scale=0.05))


def test_the_json_contains_all_runs(tmp_path: Path) -> None:
    write(_cells(), tmp_path, about={"scale": 1.0})
    results = json.loads((tmp_path / "results.json").read_text())

    assert results["cells"][0]["runs"] == [{"tasks_per_second": 60_000.0}, {"tasks_per_second": 50_000.0}]
    assert results["goals"][0]["rounds"] == [12.0, 10.0]
    assert results["goals"][0]["verdict"] == "missed"


def test_each_table_has_a_chart(tmp_path: Path) -> None:
    plot(_cells(), tmp_path)

    pictures = {path.name for path in tmp_path.glob("*.svg")}
    assert pictures == {"drain-1-quorum-tasks_per_second.svg", "drain-1-redis-tasks_per_second.svg"}


def test_figures_are_the_median_and_the_extremes() -> None:
    assert spread_text([]) == ""
    assert spread_text([12.0]) == "12"
    assert spread_text([1.0, 3.0, 2.0]) == "2 (1-3)"
    assert number_text(0.012345) == "0.0123"
    assert number_text(12345.6) == "12,346"
