"""The benchmark of the job store at a small size: it measures everything that it lists."""

import json
from pathlib import Path

import pytest

from benchmarks import store_schedules
from benchmarks.job_store import GOALS, main, percentile
from benchmarks.job_store.command import RESULTS
from benchmarks.job_store.figures import Goal, goals_table, keep, text_of

pytestmark = pytest.mark.rabbitmq

_SMALL = ["--rounds", "1", "--jobs", "100", "--rows", "600", "--lists", "3", "--queued", "10000", "--seconds", "1",
          "--gated", "10"]  # fmt: skip
_QUICK = {
    "throughput": ["bulk", "submits, 1 caller", "submits, 64 callers", "starts"],
    "lists": ["lists", "day dropped"],
    "batches": ["batches"],
    "sqlite": ["SQLite"],
}
_SLOW = {
    "lateness": ["lateness"],
    "tenants": ["tenants"],
    "killed": ["scheduler killed"],
    "gated": ["behind a gate, 1 jobs", "behind a gate, 10 jobs"],
    "logged": ["logged"],
    "workflows": [
        f"workflow: {name}" for name in ("chain of 100", "50 children", "5 runs of 10 steps", "100 runs asleep")
    ],
    "features": [
        f"feature: {name}"
        for name in ("nothing", "key", "concurrency", "rate", "order", "progress", "step", "checkpoint")
    ],
}


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [_QUICK, _SLOW], ids=["quick", "slow"])
def test_every_row_is_measured(
    names: dict[str, list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    results = tmp_path / "job_store.json"

    assert main(["--only", *names, *_SMALL, "--results", str(results)]) == 0

    kept = json.loads(results.read_text())
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if not line.startswith(" ")]
    assert rows == list(kept["rows"]) == [row for its in names.values() for row in its]
    wanted = {(goal.row, goal.figure) for goal in GOALS if goal.row in rows}
    judged = {(goal["row"], goal["figure"]) for goal in kept["goals"] if goal["verdict"] != "not measured"}
    assert judged == wanted
    assert said.count("  goal ") == len(wanted)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_schedules_are_measured_while_jobs_are_changed(tmp_path: Path) -> None:
    results = tmp_path / "job_store.json"
    beside = ["--changes", "5", "--cancels", "5", "--timers", "5"]

    command = ["--count", "100", "--rate", "20", "--settle", "5", "--seconds", "3", *beside]
    assert store_schedules.main([*command, "--results", str(results)]) == 0

    row = json.loads(results.read_text())["rows"]["schedules"]
    assert row["command"].startswith("python -m benchmarks.store_schedules --count 100 ")
    (figures,) = row["rounds"]
    assert figures["fired/s"] > 0
    assert [figures[name] for name in ("changes", "cancels", "timers")] == [15.0] * 3
    assert figures["timers that are late by 2 s"] == 0


def test_goals_are_judged_by_the_median_of_the_rounds(tmp_path: Path) -> None:
    goal = Goal("bulk", "jobs/s", 10, at_least=True)
    rows = {"bulk": [{"jobs/s": 9.0}, {"jobs/s": 12.0}, {"jobs/s": 11.0}]}

    assert [goal.verdict(found) for found in (rows, {"bulk": [{"jobs/s": 9.0}]}, {})] == [
        "met",
        "missed",
        "not measured",
    ]
    assert "11.00 (9.00-12.00)" in text_of(rows)


def test_rows_measured_before_stay_in_the_results(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    keep(path, {"bulk": [{"jobs/s": 1.0}]}, "python -m benchmarks.job_store --jobs 10")
    keep(path, {"SQLite": [{"jobs/s": 2.0}]}, "python -m benchmarks.job_store --only sqlite")

    rows = json.loads(path.read_text())["rows"]
    assert {name: row["command"].split()[-1] for name, row in rows.items()} == {"bulk": "10", "SQLite": "sqlite"}
    table = goals_table(path)
    assert "| bulk: jobs/s | >= 15,000 | 1.00 | missed |" in table
    assert "| lists: worst p95 ms | <= 8 | nothing | not measured | never |  |" in table


def test_each_missed_goal_has_a_reason() -> None:
    lines = goals_table(RESULTS).splitlines()[2:]

    missed = [line for line in lines if "| missed |" in line]

    assert missed != []
    assert [line for line in missed if line.endswith("|  |")] == []


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
    assert percentile([7.0], 0.5) == 7
