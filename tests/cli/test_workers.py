"""`taskmq workers` and `worker control` without an answering worker; with workers: tests/e2e/test_control.py."""

from pathlib import Path

import msgspec

from taskmq.app_api.workers import worker_view
from taskmq.cli.operators.workers import describe, describe_in_full
from taskmq.model.commands import CommandAnswer
from taskmq.model.telemetry.worker_status import RunningJob
from tests.cli.kit import Here, run_process
from tests.unit.model.telemetry.test_events import STATUS


def test_no_worker_is_an_empty_list_and_a_note(taskmq: Here) -> None:
    said = taskmq("-o", "json", "workers", "--within", "50ms")

    assert (said.code, said.data) == (0, [])
    assert said.err == "no worker answered within 50ms\n"


def test_a_worker_that_does_not_answer_is_not_found(taskmq: Here) -> None:
    for command in ("status", "pause", "resume", "drain", "stacks"):
        said = taskmq("worker", "control", command, "web-1:7", "--within", "50ms")

        assert (said.code, said.err) == (3, "no worker answered within 50ms\n"), command


def test_a_command_requires_its_target(taskmq: Here) -> None:
    said = taskmq("worker", "control", "drain")

    assert said.code == 2
    assert "--all" in said.err


def test_less_than_one_task_at_a_time_is_refused_before_any_worker_is_asked(taskmq: Here) -> None:
    said = taskmq("worker", "control", "concurrency", "0", "--all")

    assert said.code == 2
    assert "at least 1" in said.err


def test_an_unreachable_broker_is_reported(taskmq: Here) -> None:
    said = taskmq("--url", "local:///dev/null/queue", "workers")

    assert said.code == 5


def test_times_and_durations_are_readable_in_tables_and_numbers_in_json() -> None:
    job = RunningJob(job_id="7", task="shop.double", queue="images", attempt=1, seconds=1.5517747529997905)
    status = msgspec.structs.replace(STATUS, started=1_795_422_683_915, jobs=[job], in_hand={"images": 3})

    answer = CommandAnswer(id="1", verdict="done", worker=status.name, status=status)

    shown, data = describe(worker_view(answer)), describe_in_full(worker_view(answer))

    assert (shown["started"], shown["in_hand"]) == ("2026-11-23T08:31:23Z", "3 of images")
    assert shown["jobs"][0]["seconds"] == "1.6"
    assert (data["started"], data["jobs"][0]["seconds"]) == ("2026-11-23T08:31:23.915Z", 1.5517747529997905)


def test_a_worker_that_cannot_start_gives_the_reason_and_does_not_claim_to_drain(shop: Path) -> None:
    done = run_process(shop, "worker", "shop:app", "-Q", "imagse")

    assert done.code == 2
    assert "did you mean 'images'?" in done.err
    assert "stopping" not in done.err
    assert "drain" not in done.err
