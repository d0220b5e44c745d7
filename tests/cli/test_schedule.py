"""`taskmq schedule list|next|explain`."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import ScheduleChange
from taskmq.schedules.definition import rule_of
from taskmq.schedules.record import ScheduleRecord, encode_record
from taskmq.schedules.triggers import cron, every, once
from tests.cli.kit import Here

SCHEDULES = """\
from datetime import UTC, datetime

from taskmq import TaskMQ

app = TaskMQ()


@app.cron("30 2 * * *", name="nightly", tz="Europe/Paris", exclude=["sat"])
@app.cron("0 0 1 1 *", name="yearly", jitter="1h")
@app.every("10s", name="ended", end=datetime(2020, 1, 1, tzinfo=UTC))
@app.every("10s", name="often")
@app.task(name="tick")
def tick() -> None: ...
"""


@pytest.fixture
def schedule_app(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder with `scheduled.py`, the configured app."""
    (home / "scheduled.py").write_text(SCHEDULES)
    monkeypatch.setenv("TASKMQ_APP", "scheduled:app")
    return home


def test_schedules_are_listed_by_name_with_their_next_instant(schedule_app: Path, taskmq: Here) -> None:
    result = taskmq("schedule", "list", "-o", "json")

    assert result.code == 0
    rows = {row["name"]: row for row in result.data}
    assert list(rows) == ["ended", "nightly", "often", "yearly"]
    often, nightly, yearly, ended = (rows[name] for name in ("often", "nightly", "yearly", "ended"))
    assert often["starts"] == "tick"
    assert often["rule"] == "every 10 seconds"
    assert datetime.fromisoformat(often["next"]) - datetime.now(UTC) < timedelta(seconds=11)
    assert nightly["rule"] == "at 02:30 every day, Europe/Paris time, except on Saturdays"
    # Within its jitter.
    due = datetime.fromisoformat(yearly["next"])
    assert timedelta(0) < due - datetime(due.year, 1, 1, tzinfo=UTC) < timedelta(hours=1)
    assert ended["next"] is None


def test_schedules_created_at_runtime_are_listed_too(schedule_app: Path, taskmq: Here) -> None:
    with TaskMQ("local://.taskmq") as app:

        @app.task(name="tick")
        def tick() -> None: ...

        app.schedules.add("later", tick, once(datetime(2099, 1, 1, tzinfo=UTC)))

    result = taskmq("schedule", "list", "-o", "json")

    assert {row["name"]: row["rule"] for row in result.data}["later"] == "once, at 2099-01-01 00:00 UTC"


async def _fall_behind() -> datetime:
    """Add a schedule whose last turn was an hour ago; return when it was due next."""
    async with TaskMQ("local://.taskmq", store="sqlite:///jobs.db") as app:

        @app.task(name="tick")
        def tick() -> None: ...

        await app.schedules.aadd("late", tick, every("1h"))
        schedules = app.sessions.store().schedules
        (row,) = await schedules.find(app.name, ["late"])
        assert row is not None
        mark = app.sessions.clock.now_ms() - 3_600_000
        record = encode_record(ScheduleRecord(mark=mark, rule=rule_of(every("1h"))))
        change = ScheduleChange(
            app=app.name, name="late", before=row, definition=row.definition, record=record, next=row.next
        )
        assert await schedules.write([change]) == [True]
        due = every("1h").next_after(mark)
        assert due is not None
        return datetime.fromtimestamp(due / 1000, UTC)


def test_an_overdue_occurrence_is_listed_and_explained_as_overdue(
    schedule_app: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKMQ_STORE", "sqlite:///jobs.db")
    due = asyncio.run(_fall_behind())

    listed = taskmq("schedule", "list").out
    explained = taskmq("schedule", "explain", "late", "-n", "2").out

    assert f"{due:%Y-%m-%dT%H:%M:%SZ} (overdue)" in listed
    assert listed.count("overdue") == 1
    following = due + timedelta(hours=1)
    assert f"  {due:%Y-%m-%d %H:%M:%S}+00:00 (overdue)\n  {following:%Y-%m-%d %H:%M:%S}+00:00\n" in explained


def test_schedules_are_listed_page_by_page_with_or_without_a_state(
    schedule_app: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("local://.taskmq", "amqp://nowhere"):
        monkeypatch.setenv("TASKMQ_URL", url)
        assert [row["name"] for row in taskmq("schedule", "list", "o", "-o", "json").data] == ["often"]
    monkeypatch.setenv("TASKMQ_URL", "local://.taskmq")
    first = taskmq("schedule", "list", "--limit", "3", "-o", "json")
    rest = taskmq("schedule", "list", "--limit", "3", "--after", "often", "-o", "json")

    assert [row["name"] for row in first.data] == ["ended", "nightly", "often"]
    assert "there are more: --after often" in first.err
    assert [row["name"] for row in rest.data] == ["yearly"]
    assert "there are more" not in rest.err


def test_the_next_instant_is_shown_in_utc_and_in_the_zone(schedule_app: Path, taskmq: Here) -> None:
    result = taskmq("schedule", "next", "nightly", "-n", "3", "--after", "2026-03-26T12:00+01:00", "-o", "json")

    assert result.code == 0
    # The 28th is a Saturday; on the 29th half past two does not exist.
    assert result.data == [
        {"schedule": "nightly", "due": "2026-03-27T01:30:00Z", "local": "2026-03-27 02:30:00+01:00"},
        {"schedule": "nightly", "due": "2026-03-29T01:00:00Z", "local": "2026-03-29 03:00:00+02:00"},
        {"schedule": "nightly", "due": "2026-03-30T00:30:00Z", "local": "2026-03-30 02:30:00+02:00"},
    ]


def test_without_names_all_schedules_are_merged_in_order(schedule_app: Path, taskmq: Here) -> None:
    result = taskmq("schedule", "next", "-n", "3", "--after", "2026-03-27T01:29:45Z", "-o", "json")

    assert [row["schedule"] for row in result.data] == ["often", "nightly", "often"]


def test_every_occurrence_up_to_an_instant_is_listed_in_order(schedule_app: Path, taskmq: Here) -> None:
    start, end = "2026-03-27T01:29:45Z", "2026-03-27T01:30:10Z"
    result = taskmq("schedule", "next", "--after", start, "--until", end, "-o", "json")

    assert result.code == 0
    assert [(row["schedule"], row["due"][14:19]) for row in result.data] == [
        ("often", "29:50"),
        ("nightly", "30:00"),
        ("often", "30:00"),
        ("often", "30:10"),
    ]
    assert "only the first" not in result.err


def test_occurrences_of_named_schedules_are_listed_up_to_a_relative_time(schedule_app: Path, taskmq: Here) -> None:
    result = taskmq("schedule", "next", "nightly", "--until", "+80h", "-o", "json")

    # Three days, one of which may be a Saturday, or four.
    assert 2 <= len(result.data) <= 4
    assert {row["schedule"] for row in result.data} == {"nightly"}


@pytest.mark.parametrize(("more", "most"), [((), 1_000), (("-n", "3"), 3)])
def test_a_list_up_to_an_instant_says_that_it_was_truncated(
    schedule_app: Path, taskmq: Here, more: tuple[str, ...], most: int
) -> None:
    result = taskmq("schedule", "next", "often", "--until", "+1d", *more, "-o", "json")

    assert len(result.data) == most
    said = f"listed only the first {most:,} occurrences until +1d: name schedules, or raise -n"
    assert said in " ".join(result.err.split())


@pytest.mark.parametrize("until", ["soon", "+soon", "+99999999w", "2026-01-01T10:00", ""])
def test_an_invalid_end_is_refused(schedule_app: Path, taskmq: Here, until: str) -> None:
    result = taskmq("schedule", "next", "--until", until)

    assert result.code == 2
    assert f"--until {until!r} is not an instant: write for example 2027-01-31T09:00+01:00, or +1h" in result.err


@pytest.mark.parametrize("command", ["next", "explain"])
def test_a_missing_schedule_is_not_found(schedule_app: Path, taskmq: Here, command: str) -> None:
    result = taskmq("schedule", command, "nothing")

    assert result.code == 3
    assert "'nothing'" in result.err


@pytest.mark.parametrize("after", ["soon", "2026-01-01", "2026-01-01T10:00"])
def test_an_instant_without_a_zone_is_refused(schedule_app: Path, taskmq: Here, after: str) -> None:
    result = taskmq("schedule", "next", "--after", after)

    assert result.code == 2
    assert f"--after {after!r} is not an instant" in result.err


def test_an_expression_is_explained_without_an_app(home: Path, taskmq: Here) -> None:
    trigger, before = cron("30 2 * * MON-FRI", tz="Europe/Paris"), int(datetime.now(UTC).timestamp() * 1000)
    result = taskmq("schedule", "explain", "30 2 * * MON-FRI", "--tz", "Europe/Paris", "-n", "4", "-o", "json")

    assert result.code == 0
    assert result.data["means"] == "at 02:30 on Monday to Friday, Europe/Paris time"
    assert result.data["clock changes"] == (
        "a skipped time is due right after the gap; a repeated time is due the first time only"
    )
    due = [datetime.fromisoformat(each) for each in result.data["next"]]
    assert len(due) == 4
    assert all(each.weekday() < 5 for each in due)
    # It may have become due in the meantime.
    expected = {trigger.next_after(before), trigger.next_after(int(datetime.now(UTC).timestamp() * 1000))}
    assert due[0].timestamp() * 1000 in expected


def test_the_explanation_of_h_mentions_the_name(home: Path, taskmq: Here) -> None:
    hashed = taskmq("schedule", "explain", "H 3 * * *", "-o", "json")

    assert hashed.data["means"] == "at 03:00 every day, UTC"
    assert "a schedule derives it from its name" in hashed.err
    assert taskmq("schedule", "explain", "0 3 * * *", "-o", "json").err == ""


def test_policies_are_explained(home: Path, taskmq: Here) -> None:
    options = ("--tz", "Europe/Paris", "--dst-gap", "skip", "--dst-fold", "both", "-o", "json")

    assert taskmq("schedule", "explain", "30 2 * * *", *options).data["clock changes"] == (
        "a skipped time is not due; a repeated time is due both times"
    )
    assert taskmq("schedule", "explain", "@hourly", *options).data["clock changes"] == "goes by elapsed time"
    in_utc = taskmq("schedule", "explain", "30 2 * * *", "-o", "json").data
    assert in_utc["clock changes"] == "none: UTC has no clock changes"


def test_a_schedule_is_explained_by_its_name(schedule_app: Path, taskmq: Here) -> None:
    result = taskmq("schedule", "explain", "nightly")

    assert result.code == 0
    said = result.out.splitlines()
    assert said[0].split() == ["schedule", "nightly"]
    assert said[2].split(maxsplit=1) == ["means", "at 02:30 every day, Europe/Paris time, except on Saturdays"]
    assert len(said) == 10


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["0 0 30 2 *"], "is never due"),
        (["* * * * * *"], "six fields"),
        (["@daily", "--tz", "Mars/Olympus"], "is not a time zone"),
    ],
)
def test_an_invalid_expression_is_refused(home: Path, taskmq: Here, tokens: list[str], message: str) -> None:
    result = taskmq("schedule", "explain", *tokens)

    assert result.code == 2
    assert message in result.err


def test_an_app_without_a_state_shows_the_schedules_in_its_code(
    schedule_app: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKMQ_URL", "amqp://nobody@127.0.0.1:1/")

    result = taskmq("schedule", "next", "-n", "1", "-o", "json")

    assert (result.code, len(result.data)) == (0, 1)
    assert "only schedules defined in code" in result.err
