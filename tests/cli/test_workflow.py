"""`taskmq workflow` and `taskmq run` on workflows of the store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taskmq.contracts.history import history_of
from taskmq.load_app import load_app
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.cli.kit import Here

_APP = """\
from taskmq import TaskMQ

app = TaskMQ("local://.taskmq", store="sqlite:///jobs.db")


@app.task(name="extract")
async def extract(day: str) -> str:
    return day
"""
_FILE = """\
workflow: nightly
params: {day: {type: string, format: date}, rows: {type: integer, default: 1}}
steps:
  extract: {task: extract, with: {day: "${params.day}"}}
  approve: {wait: approval, needs: [extract]}
"""


@pytest.fixture
def nightly(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an app and a workflow file; return the file."""
    (home / "etl.py").write_text(_APP)
    monkeypatch.setenv("TASKMQ_APP", "etl:app")
    # No scheduler runs.
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    (home / "nightly.yaml").write_text(_FILE)
    return home / "nightly.yaml"


def _settle(run_id: str, *finished: str) -> None:
    """Advance the run, and let the jobs of these steps succeed."""

    async def settle() -> None:
        app, _ = load_app("etl:app")
        async with app:
            driver = RunDriver(app.sessions.store())
            await driver.settle()
            for step in finished:
                await driver.finish(run_id, step, value="done")

    asyncio.run(settle())


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_file_is_applied_compared_and_activated(nightly: Path, taskmq: Here) -> None:
    trial = taskmq("workflow", "apply", "nightly.yaml", "--dry-run")
    empty = taskmq("workflow", "list", "-o", "json")
    first = taskmq("workflow", "apply", "nightly.yaml", "-o", "json")
    nightly.write_text(_FILE.replace("default: 1", "default: 2"))
    change = taskmq("workflow", "apply", "nightly.yaml", "--dry-run")
    second = taskmq("workflow", "apply", "nightly.yaml", "-o", "json")
    old, new = first.data["version"], second.data["version"]
    compared = taskmq("workflow", "diff", "nightly", old)
    back = taskmq("workflow", "activate", "nightly", old)
    again = taskmq("workflow", "apply", "nightly.yaml")
    versions = taskmq("workflow", "versions", "nightly")

    assert (trial.code, empty.data) == (0, [])
    assert '+    "extract": {' in trial.out
    assert (first.code, second.code) == (0, 0)
    assert f"workflow nightly: version {new[:12]} is new, and current\n" in second.err
    assert {line.strip() for line in change.out.splitlines() if line.startswith(("- ", "+ "))} == {
        '-      "default": 1,',
        '+      "default": 2,',
    }
    assert (compared.code, compared.out) == (1, change.out)
    assert back.code == 0
    assert "the version is known and not current" in again.err
    assert _rows(versions.out)[1:] == [
        ["nightly", new, "False", "False", _rows(versions.out)[1][4]],
        ["nightly", old, "True", "False", _rows(versions.out)[2][4]],
    ]
    assert taskmq("workflow", "diff", "nightly", old, old).code == 0


def test_the_printed_content_is_applied_as_the_same_version(nightly: Path, taskmq: Here) -> None:
    version = taskmq("workflow", "apply", "nightly.yaml", "-o", "json").data["version"]
    (nightly.parent / "copy.json").write_text(taskmq("workflow", "show", "nightly").out)

    copy = taskmq("workflow", "apply", "copy.json", "-o", "json").data

    assert (copy["version"], copy["is_new"]) == (version, False)
    assert taskmq("workflow", "show", "weekly").code == 3


def test_the_schedule_of_a_file_is_shown_in_differences_and_stored(nightly: Path, taskmq: Here) -> None:
    first = taskmq("workflow", "apply", "nightly.yaml", "-o", "json").data["version"]
    nightly.write_text(f"schedule: {{cron: '30 2 * * *', params: {{day: '2027-01-31'}}}}\n{_FILE}")
    trial = taskmq("workflow", "apply", "nightly.yaml", "--dry-run")
    none = taskmq("schedule", "list", "-o", "json").data
    applied = taskmq("workflow", "apply", "nightly.yaml")
    (listed,) = taskmq("schedule", "list", "-o", "json").data
    compared = taskmq("workflow", "diff", "nightly", first)
    nightly.write_text(_FILE)
    taskmq("workflow", "activate", "nightly", first)

    assert '+    "cron": "30 2 * * *",' in trial.out.splitlines()
    assert (trial.code, none, compared.out) == (0, [], trial.out)
    assert applied.err.splitlines()[-1] == (
        "workflow nightly: its schedule starts it: `taskmq schedule show nightly`"
    )
    assert (listed["name"], listed["starts"], listed["cron"]) == ("nightly", "workflow nightly", "30 2 * * *")
    assert taskmq("schedule", "list", "-o", "json").data == []


def test_a_faulty_file_is_not_applied(nightly: Path, taskmq: Here) -> None:
    nightly.write_text(_FILE.replace("extract, with: {day", "extract, with: {dya"))

    result = taskmq("workflow", "apply", "nightly.yaml")

    assert result.code == 1
    assert _rows(result.out)[0][:5] == ["nightly.yaml:", "line", "4,", "step", "extract,"]
    assert taskmq("workflow", "list", "-o", "json").data == []


def test_a_run_is_started_signalled_and_shown(nightly: Path, taskmq: Here) -> None:
    taskmq("workflow", "apply", "nightly.yaml")
    start = ("workflow", "start", "nightly", "-p", "day=2027-01-31", "-p", "rows=3", "--label", "team=ops")
    started = taskmq(*start, "-o", "json")
    run = started.data["run_id"]
    _settle(run, "extract")
    steps = taskmq("run", "steps", run)
    graph = taskmq("run", "graph", run)
    timeline = taskmq("run", "timeline", run)
    rows = taskmq("run", "timeline", run, "-o", "json").data
    signalled = taskmq("run", "signal", run, "approval", '{"ok": true}', "--id", "order-17")
    _settle(run)
    shown = taskmq("run", "show", run)
    listed = taskmq("run", "list", "workflow:night* label.team:ops", "-o", "json")

    assert started.code == 0
    assert [row[:4] for row in _rows(steps.out)[1:]] == [
        ["extract", "task", "extract", "succeeded"],
        ["approve", "wait", "approval", "running"],
    ]
    assert graph.out.startswith("flowchart LR\n")
    first, second = rows
    (job,) = first["jobs"]
    assert _rows(timeline.out)[1][:2] == ["extract", "succeeded"]
    assert _rows(timeline.out)[1][-1] == job["job_id"]
    assert (second["kind"], second["ready"], second["jobs"]) == ("wait", first["ended"], [])
    assert ["effect", "sent"] in _rows(signalled.out)
    facts: dict[str, Any] = {row[0]: " ".join(row[1:]) for row in _rows(shown.out)}
    assert (facts["state"], facts["params"]) == ("succeeded", '{"day":"2027-01-31","rows":3}')
    assert [one["run_id"] for one in listed.data] == [run]


def test_the_log_of_a_run_is_printed_and_followed_to_its_end(nightly: Path, taskmq: Here) -> None:
    taskmq("workflow", "apply", "nightly.yaml")
    run = taskmq("workflow", "start", "nightly", "-p", "day=2027-01-31", "-o", "json").data["run_id"]

    async def log() -> None:
        app, _ = load_app("etl:app")
        async with app:
            driver = RunDriver(app.sessions.store())
            await driver.settle()
            queue = (await driver.read((await driver.step(run, "extract")).job)).queue
            (job,) = (await driver.dispatch(queue=queue)).jobs
            lines = [RunLine(1_801_000_000_000 + number, 20, "etl", f"read {number}") for number in range(3)]
            await history_of(driver.store).logs.add([RunLog(id=job.id, token=job.token, lines=lines)])

    asyncio.run(log())
    listed = taskmq("run", "logs", run, "--step", "extract", "--limit", "2")
    other = taskmq("run", "logs", run, "--step", "approve", "-o", "json")
    taskmq("run", "cancel", run)
    _settle(run, "extract")
    followed = taskmq("run", "logs", run, "--follow")

    expected = [f"2027-01-26T21:46:40Z INFO     extract: etl: read {number}" for number in range(3)]
    assert listed.out.splitlines() == expected[:2]
    assert listed.err == "there are more: --limit 20\n"
    assert other.data == []
    assert followed.out.splitlines() == expected


def test_a_run_is_cancelled_and_redriven(nightly: Path, taskmq: Here) -> None:
    taskmq("workflow", "apply", "nightly.yaml")
    run = taskmq("workflow", "start", "nightly", "-p", "day=2027-01-31", "-o", "json").data["run_id"]
    _settle(run)

    cancelled = taskmq("run", "cancel", run, "--reason", "ordered twice")
    _settle(run)
    late = taskmq("run", "cancel", run)
    preview = taskmq("run", "redrive", run, "--dry-run", "-o", "json")
    redriven = taskmq("run", "redrive", run)

    assert preview.data == ["extract", "approve"]
    assert (cancelled.code, cancelled.err) == (0, f"run {run}: cancellation requested\n")
    assert late.code == 6
    assert (redriven.code, redriven.err) == (0, f"run {run}: 2 steps run again\n")
    assert taskmq("run", "show", "none").code == 3


def test_a_step_shows_the_quota_that_it_waits_for(nightly: Path, taskmq: Here) -> None:
    assert taskmq("quota", "set", "", "--a-day", "0").code == 0
    taskmq("workflow", "apply", "nightly.yaml")
    run = taskmq("workflow", "start", "nightly", "-p", "day=2027-01-31", "-o", "json").data["run_id"]
    _settle(run)

    steps = taskmq("run", "steps", run)
    facts = taskmq("run", "steps", run, "-o", "json").data

    assert "tenant '' has reached its quota of 0 jobs per day" in steps.out
    assert [(step["state"], bool(step["quota"])) for step in facts] == [("waiting", True), ("waiting", False)]


def test_a_run_is_held_released_and_cloned(nightly: Path, taskmq: Here) -> None:
    taskmq("workflow", "apply", "nightly.yaml")
    run = taskmq("workflow", "start", "nightly", "-p", "day=2027-01-31", "-p", "rows=3", "-o", "json").data["run_id"]
    _settle(run)

    held = taskmq("run", "hold", run, "--reason", "disk full")
    _settle(run, "extract")
    steps = taskmq("run", "steps", run)
    listed = taskmq("run", "list")
    released = taskmq("run", "release", run)
    _settle(run)
    after = taskmq("run", "steps", run)
    cloned = taskmq("run", "clone", run, "-p", "day=2027-02-01", "-o", "json").data["run_id"]
    wrong = taskmq("run", "clone", run, "-p", "dya=2027-02-01")

    assert (held.err, released.err) == (f"run {run}: held\n", f"run {run}: released\n")
    assert [row[3] for row in _rows(steps.out)[1:]] == ["succeeded", "waiting"]
    assert _rows(listed.out)[1][2] == "held"
    assert [row[3] for row in _rows(after.out)[1:]] == ["succeeded", "running"]
    assert taskmq("run", "show", cloned, "-o", "json").data["params"] == {"day": "2027-02-01", "rows": 3}
    assert (wrong.code, "no parameter 'dya': did you mean 'day'?" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-p", "day"), "--param 'day': must be NAME=VALUE"),
        (("-p", "dya=1"), "workflow nightly: no parameter 'dya': did you mean 'day'?"),
        (("-p", "day=soon"), "workflow nightly: parameter 'day':"),
    ],
)
def test_a_wrong_parameter_is_a_usage_error(nightly: Path, taskmq: Here, words: tuple[str, ...], reason: str) -> None:
    taskmq("workflow", "apply", "nightly.yaml")

    result = taskmq("workflow", "start", "nightly", *words)

    assert result.code == 2
    assert reason in result.err
