"""`taskmq job`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from taskmq import TaskMQ
from taskmq.model.topology import WorkQueue
from tests.cli.kit import SHOP, Here, Result, Started, at_broker, bury
from tests.servers import eventually

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
    """A folder with `later.py`, and three jobs that wait in its state."""
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


def test_waiting_jobs_are_listed_earliest_first(later: Path, taskmq: Here) -> None:
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
def test_waiting_jobs_are_listed_by_task_queue_and_number(
    later: Path, taskmq: Here, options: tuple[str, ...], expected: list[str]
) -> None:
    assert jobs(taskmq("job", "waiting", *options, "-o", "json")) == expected


def test_a_job_is_cancelled_once(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "cancel", "a", "--app", "later:app")
    again = taskmq("job", "cancel", "a")

    assert (result.code, result.out, result.err) == (
        0,
        "",
        "job a cancelled; it was waiting and will not run\n",
    )
    assert again.code == 3
    assert "job a has already ended" in again.err
    assert jobs(taskmq("job", "waiting", "-o", "json")) == ["c", "b"]


def test_an_unknown_id_is_reported_as_unknown(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "cancel", "nobody", "--app", "later:app")

    assert result.code == 3
    assert "job nobody unknown to the state" in result.err


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
        (("--eta", "tomorrow"), "is not an instant"),
        (("--eta", "2031-02-03T04:05"), "is not an instant"),
        (("--delay", "soon"), "is not a duration"),
    ],
)
def test_an_ambiguous_time_is_refused(later: Path, taskmq: Here, options: tuple[str, ...], words: str) -> None:
    result = taskmq("job", "reschedule", "a", *options)

    assert result.code == 2
    assert words in result.err
    assert jobs(taskmq("job", "waiting", "-o", "json")) == ["c", "a", "b"]


def test_an_unknown_job_is_not_found(later: Path, taskmq: Here) -> None:
    result = taskmq("job", "reschedule", "unknown", "--delay", "5m")

    assert result.code == 3
    assert "job unknown is not waiting in the state" in result.err


def test_without_a_state_the_error_lists_the_available_ones(home: Path, taskmq: Here) -> None:
    result = taskmq("job", "waiting", "--url", "amqp://localhost")

    assert result.code == 2
    assert "state='redis://...'" in result.err


def test_an_unavailable_state_is_unreachable(home: Path, taskmq: Here) -> None:
    result = taskmq("job", "waiting", "--url", "amqp://localhost", "--state", "redis://:secret@127.0.0.1:1/0")

    assert result.code == 5
    assert "redis://127.0.0.1:1/0" in result.err
    assert "secret" not in result.err


PROGRESS = """

from taskmq import Context

@app.task(queue="images", result=True, name="shop.steps")
async def steps(context: Context, secret: str) -> str:
    context.progress(10, 40, "tenth")
    while True:
        await asyncio.sleep(1)


@app.task(queue="images", result=True, name="shop.secret")
async def answer(secret: str) -> str:
    return f"the answer to {secret}"


@app.task(queue="images", result=True, retry=None, name="shop.broken")
async def broken(secret: str) -> str:
    raise ValueError("no such photo")
"""


def show_job(taskmq: Here, job: str, *options: str, within: str = "10ms") -> dict[str, Any]:
    result = taskmq("job", "show", job, "--app", "shop:app", "-o", "json", "--within", within, *options)
    assert result.code == 0, result.err
    return cast("dict[str, Any]", result.data)


def test_an_ended_running_or_failed_job_is_shown_without_its_values(home: Path, taskmq: Here) -> None:
    (home / "shop.py").write_text(SHOP + PROGRESS)
    with Started(home, "worker", "shop:app", "--name", "w1", "--grace", "0s") as worker:
        worker.says("waiting for jobs")
        jobs: dict[str, str] = {}
        for task in ("steps", "secret", "broken"):
            sent = taskmq("send", f"shop.{task}", "--args", '["x-secret"]', "--app", "shop:app", "-o", "json")
            assert sent.code == 0, sent.err
            jobs[task] = sent.data["job"]
        eventually(lambda: show_job(taskmq, jobs["secret"])["state"] == "succeeded", "the one has ended")
        eventually(lambda: show_job(taskmq, jobs["broken"])["letters"], "the other is dead")

        def show_running() -> dict[str, Any]:
            # Only the worker knows of it, so this waits for its answer.
            shown = show_job(taskmq, jobs["steps"], within="0.4s")
            return shown if shown["progress"] else {}

        running = eventually(show_running, "the third tells its progress")
        done, failed = (show_job(taskmq, jobs[name]) for name in ("secret", "broken"))
        table = taskmq("job", "show", jobs["broken"], "--app", "shop:app", "--within", "10ms").out
        with_values = [show_job(taskmq, jobs[name], "--values") for name in ("secret", "broken")]

    assert (done["task"], done["state"], done["attempt"], done["worker"]) == ("shop.secret", "succeeded", 1, "w1")
    assert done["finished"].endswith("Z")
    assert (failed["state"], failed["queue"], failed["error"]) == ("failed", "images", "ValueError: no such photo")
    assert [(letter["queue"], letter["reason"]) for letter in failed["letters"]] == [("images", "error")]
    assert (running["state"], running["worker"], running["queue"]) == ("running", "w1", "images")
    assert running["progress"].startswith("10 of 40: tenth (attempt 1, ")
    assert "x-secret" not in f"{done} {failed} {running} {table}"
    assert "error     ValueError: no such photo" in table
    assert "letters   " in table
    assert with_values[0]["result"] == "the answer to x-secret"
    assert "x-secret" in with_values[1]["body"]
    assert "ValueError" in with_values[1]["traceback"]


def test_a_job_that_waits_in_the_state_is_shown_with_its_due_time(later: Path, taskmq: Here) -> None:
    found = shown_later(taskmq, "a")

    assert (found["state"], found["task"], found["queue"], found["attempt"]) == ("scheduled", "double", "images", 1)
    assert found["due"] > found["enqueued"]


def shown_later(taskmq: Here, job: str) -> dict[str, Any]:
    result = taskmq("job", "show", job, "--app", "later:app", "--within", "10ms", "-o", "json")
    assert result.code == 0
    return cast("dict[str, Any]", result.data)


def test_a_letter_reports_the_failure_of_a_job_without_stored_results(shop: Path, taskmq: Here) -> None:
    at_broker(lambda broker: broker.declare([WorkQueue("images")]))
    bury("images.dlq", ["a"])

    found = show_job(taskmq, "a")

    assert (found["state"], found["attempt"], found["error"]) == ("failed", 3, "ValueError: no")
    assert found["worker"] == "host:1"


def test_a_parked_message_is_shown_and_not_reported_as_a_failure(shop: Path, taskmq: Here) -> None:
    at_broker(lambda broker: broker.declare([WorkQueue("images")]))
    bury("taskmq.parking", ["a"])

    found = show_job(taskmq, "a")

    assert (found["state"], found["letters"][0]["queue"]) == ("unknown", "taskmq.parking")


def test_a_job_cancelled_before_its_run_is_shown_with_the_reason(shop: Path, taskmq: Here) -> None:
    taskmq("job", "cancel", "a", "--reason", "not wanted", "--app", "shop:app")

    found = show_job(taskmq, "a")

    assert (found["state"], found["cancelled"]) == ("unknown", "not wanted")


def test_an_unknown_job_is_not_found_and_its_state_is_not_guessed(shop: Path, taskmq: Here) -> None:
    result = taskmq("job", "show", "nobody", "--app", "shop:app", "--within", "100ms")

    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("job nobody not found in the state, in the dead letters, or in a worker")
