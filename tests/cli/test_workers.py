"""What `taskmq workers` and `worker control` say where no worker answers; with workers: tests/e2e/test_control.py."""

from tests.cli.kit import Here


def test_no_worker_is_an_empty_list_and_a_note(taskmq: Here) -> None:
    said = taskmq("-o", "json", "workers", "--within", "50ms")

    assert (said.code, said.data) == (0, [])
    assert said.err == "no worker answers within 50ms\n"


def test_a_worker_that_does_not_answer_is_not_found(taskmq: Here) -> None:
    for command in ("status", "drain", "stacks"):
        said = taskmq("worker", "control", command, "web-1:7", "--within", "50ms")

        assert (said.code, said.err) == (3, "no worker answers within 50ms\n"), command


def test_whom_a_command_is_for_has_to_be_said(taskmq: Here) -> None:
    said = taskmq("worker", "control", "drain")

    assert said.code == 2
    assert "--all" in said.err


def test_less_than_one_task_at_a_time_is_refused_before_anybody_is_asked(taskmq: Here) -> None:
    said = taskmq("worker", "control", "concurrency", "0", "--all")

    assert said.code == 2
    assert "at least 1" in said.err


def test_a_broker_that_is_not_there_is_said_to_be(taskmq: Here) -> None:
    said = taskmq("--url", "local:///dev/null/queue", "workers")

    assert said.code == 5
