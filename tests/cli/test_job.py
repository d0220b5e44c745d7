"""`taskmq job`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskmq import TaskMQ
from tests.cli.kit import Here, Result

LATER = """\
from taskmq import TaskMQ

app = TaskMQ(delay="state")


@app.task(name="double", queue="images")
async def double(number: int) -> int: ...


@app.task(name="other", queue="others", priority=9)
async def other() -> None: ...
"""


@pytest.fixture
def later(home: Path) -> Path:
    """A current folder with `later.py`, and three jobs that wait in its state."""
    (home / "later.py").write_text(LATER)
    with TaskMQ("local://.taskmq", delay="state") as app:

        @app.task(name="double", queue="images")
        async def double(number: int) -> None: ...

        @app.task(name="other", queue="others", priority=9)
        async def other() -> None: ...

        double.options(delay="1h", job_id="a").send(1)
        double.options(delay="2h", job_id="b").send(2)
        other.options(delay="30m", job_id="c").send()
    return home


def jobs(result: Result) -> list[str]:
    assert result.code == 0
    return [row["job"] for row in result.data]


def test_jobs_that_wait_are_listed_the_earliest_first(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "waiting", "-o", "json")

    assert jobs(result) == ["c", "a", "b"]
    first = result.data[0]
    assert first | {"due": "", "enqueued": ""} == {
        "job": "c",
        "task": "other",
        "queue": "others",
        "due": "",
        "enqueued": "",
    }
    until = datetime.fromisoformat(first["due"]) - datetime.fromisoformat(first["enqueued"])
    assert until == timedelta(minutes=30)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--task", "double"), ["a", "b"]),
        (("--queue", "others"), ["c"]),
        (("--limit", "1"), ["c"]),
        (("--queue", "images", "--task", "other"), []),
    ],
)
def test_they_are_listed_by_task_queue_and_number(
    later: Path, taskmq: Here, options: tuple[str, ...], expected: list[str]
) -> None:
    assert jobs(taskmq("job", "waiting", *options, "-o", "json")) == expected


def test_a_job_is_cancelled_once(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "cancel", "a", "--app", "later:app")
    again = taskmq("job", "cancel", "a")

    assert (result.code, result.out, result.err) == (
        0,
        "",
        "job a is cancelled: it waited for its time, and is gone\n",
    )
    assert again.code == 3
    assert "job a has ended already" in again.err
    assert jobs(taskmq("job", "waiting", "-o", "json")) == ["c", "b"]


def test_an_id_that_nobody_knows_is_said_to_be_unknown(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "cancel", "nobody", "--app", "later:app")

    assert result.code == 3
    assert "job nobody is not known to the state" in result.err


def test_a_job_is_rescheduled_by_delay_or_instant(later: Path, taskmq: Here) -> None:
    assert taskmq("job", "reschedule", "c", "--delay", "3h").code == 0
    assert taskmq("job", "reschedule", "b", "--eta", "2031-02-03T04:05:06+02:00").code == 0

    rows = {row["job"]: row["due"] for row in taskmq("job", "waiting", "-o", "json").data}
    assert list(rows) == ["a", "c", "b"]
    assert rows["b"] == "2031-02-03T02:05:06Z"
    assert datetime.fromisoformat(rows["c"]) - datetime.now(UTC) > timedelta(hours=2, minutes=58)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "either delay or eta"),
        (("--delay", "5m", "--eta", "2031-02-03T04:05Z"), "either delay or eta"),
        (("--eta", "tomorrow"), "is no instant"),
        (("--eta", "2031-02-03T04:05"), "needs a time zone"),
        (("--delay", "soon"), "is no duration"),
    ],
)
def test_when_has_to_be_clear(later: Path, taskmq: Here, options: tuple[str, ...], words: str) -> None:
    result = taskmq("job", "reschedule", "a", *options)

    assert result.code == 2
    assert words in result.err
    assert jobs(taskmq("job", "waiting", "-o", "json")) == ["c", "a", "b"]


def test_a_job_that_nobody_knows_is_not_found(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "reschedule", "unknown", "--delay", "5m")

    assert result.code == 3
    assert "job unknown does not wait in the state" in result.err


def test_without_a_state_it_says_which_ones_there_are(home: Path, taskmq: Here) -> None:
    result = taskmq("job", "waiting", "--url", "amqp://localhost")

    assert result.code == 2
    assert "state='redis://...'" in result.err


def test_a_state_that_is_not_there_is_unreachable(home: Path, taskmq: Here) -> None:
    result = taskmq("job", "waiting", "--url", "amqp://localhost", "--state", "redis://:secret@127.0.0.1:1/0")

    assert result.code == 5
    assert "redis://127.0.0.1:1/0" in result.err
    assert "secret" not in result.err
