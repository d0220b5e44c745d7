"""`taskmq schedule`: its changes."""

from pathlib import Path

import pytest

from tests.cli.kit import Here

_OPS = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.every("1h")
@app.task(name="tick", queue="ticks")
async def tick() -> None: ...


@app.task(name="say", queue="ticks")
async def say(text: str, *, times: int = 1) -> None: ...
"""


@pytest.fixture
def ops(home: Path) -> None:
    (home / "ops.py").write_text(_OPS)


@pytest.mark.usefixtures("ops")
def test_a_schedule_is_added_listed_and_removed(taskmq: Here) -> None:
    added = taskmq(
        "--app", "ops:app", "schedule", "add", "nightly", "say", "--cron", "0 3 * * *", "--tz", "Europe/Berlin",
        "--args", '["hello"]', "--kwargs", '{"times": 2}', "--overlap", "buffer_all", "--max-concurrency", "2",
        "--catchup", "all", "--on-resume", "catchup",
    )  # fmt: skip
    assert added.code == 0, added.err
    assert "schedule nightly calls say: at 03:00 every day, Europe/Berlin time" in added.err

    listed = taskmq("-o", "json", "--app", "ops:app", "schedule", "list")
    assert {row["name"]: row["starts"] for row in listed.data} == {"nightly": "say", "tick": "tick"}

    assert taskmq("--app", "ops:app", "schedule", "explain", "nightly").code == 0
    assert taskmq("--app", "ops:app", "schedule", "remove", "nightly", "--yes").code == 0
    listed = taskmq("-o", "json", "--app", "ops:app", "schedule", "list")
    assert [row["name"] for row in listed.data] == ["tick"]


@pytest.mark.usefixtures("ops")
def test_a_schedule_is_paused_run_manually_and_resumed(taskmq: Here) -> None:
    assert taskmq("--app", "ops:app", "schedule", "pause", "tick", "--note", "the printer is broken").code == 0
    ran = taskmq("-o", "json", "--app", "ops:app", "schedule", "run", "tick")
    assert ran.code == 0, ran.err
    assert set(ran.data) == {"job"}

    told = taskmq("-o", "json", "--app", "ops:app", "schedule", "history", "tick")

    assert [row["kind"] for row in told.data["history"]] == ["run"]
    assert "(the printer is broken); 0 fired, 0 late, 0 missed, 0 coalesced, 0 skipped, 0 failed" in told.err
    (row,) = taskmq("-o", "json", "--app", "ops:app", "schedule", "list").data
    assert (row["next"], row["paused"][:2], row["note"]) == (None, "20", "the printer is broken")
    due = taskmq("-o", "json", "--app", "ops:app", "schedule", "next")
    assert (due.data, "tick is paused since" in due.err) == ([], True)
    explained = taskmq("-o", "json", "--app", "ops:app", "schedule", "explain", "tick").data
    assert (explained["paused"], explained["note"]) == (row["paused"], "the printer is broken")
    words = taskmq("--app", "ops:app", "schedule", "explain", "tick").out
    assert "(the printer is broken); resume it with" in words
    assert taskmq("--app", "ops:app", "schedule", "resume", "tick").code == 0
    assert "tick: next " in taskmq("--app", "ops:app", "schedule", "history", "tick").err


@pytest.mark.usefixtures("ops")
def test_a_backfill_lists_what_it_emits(taskmq: Here) -> None:
    span = ("--from", "2026-01-31T09:30+01:00", "--to", "2026-01-31T12:00+01:00")
    for dry_run in (("--dry-run",), ()):
        told = taskmq("-o", "json", "--app", "ops:app", "schedule", "backfill", "tick", *span, *dry_run)

        assert told.code == 0, told.err
        assert told.data["instants"] == [
            "2026-01-31T09:00:00.000Z",
            "2026-01-31T10:00:00.000Z",
            "2026-01-31T11:00:00.000Z",
        ]


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("add", "x", "say"), "pass one of --cron, --every and --at"),
        (("add", "x", "say", "--every", "1s", "--at", "2030-01-01T00:00Z"), "pass one of --cron, --every and --at"),
        (("add", "x", "nothing", "--every", "1s"), "the app has no task 'nothing'; it has say, tick"),
        (("add", "x", "say", "--every", "1s", "--args", "{"), "--args is not valid JSON"),
        (("add", "x", "say", "--every", "1s"), "'text' is missing"),
        (("add", "x", "say", "--at", "tomorrow"), "--at 'tomorrow' is not an instant"),
        (("remove", "tick", "--yes"), "is defined in the code"),
        (("pause", "x"), "no schedule 'x'"),
        (("history", "x"), "no schedule 'x'"),
        (("backfill", "tick", "--from", "x", "--to", "y"), "--from 'x' is not an instant"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_changes_are_wrong_usage(taskmq: Here, tokens: tuple[str, ...], words: str) -> None:
    result = taskmq("--app", "ops:app", "schedule", *tokens)

    assert result.code == 2
    assert words in result.err


@pytest.mark.usefixtures("ops")
def test_changes_without_a_state_are_refused(taskmq: Here) -> None:
    result = taskmq("--url", "amqp://127.0.0.1:1/", "--app", "ops:app", "schedule", "pause", "tick")

    assert result.code == 2
    assert "schedules need a state" in result.err
