"""`taskmq send`."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from taskmq.options.task_options import CallOptions
from tests.cli.kit import PATIENCE, SHOP, Here, Result, Started, bodies_in, declare, exists, names_in, run_process
from tests.servers import eventually


@pytest.fixture(scope="module")
def worker_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create a folder with `shop.py` and run a worker for its queues."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "shop.py").write_text(SHOP)
    with Started(folder, "worker", "shop:app") as worker:
        worker.says("waiting for jobs")
        yield folder


@pytest.fixture
def send(worker_folder: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Runs commands in the folder of the worker."""
    monkeypatch.chdir(worker_folder)
    return taskmq


def _job_id_of(result: Result) -> str:
    assert (result.code, result.err) == (0, "")
    job = result.data["job"]
    assert isinstance(job, str)
    return job


def test_a_task_is_sent_by_name_and_its_job_id_is_printed(shop: Path, taskmq: Here) -> None:
    declare("images")

    job = _job_id_of(taskmq("-o", "json", "send", "shop.double", "--queue", "images", "--args", "[21]"))

    assert names_in("images") == [job]
    assert "shop" not in sys.modules


def test_a_task_of_the_app_goes_to_its_own_queue(shop: Path, taskmq: Here) -> None:
    declare("images", "default")

    job = _job_id_of(taskmq("-o", "json", "--app", "shop:app", "send", "shop.double", "--args", "[21]"))

    assert names_in("images") == [job]
    assert names_in("default") == []


def test_an_unknown_task_is_refused_unless_forced(shop: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    declare("images", "default")
    monkeypatch.setenv("TASKMQ_APP", "shop:app")

    refused = taskmq("send", "shop.duoble", "--args", "[21]")
    wrong = taskmq("send", "shop.double", "--args", '["x"]')
    forced = taskmq("send", "shop.duoble", "--args", "[21]", "--force")

    assert (refused.code, wrong.code, forced.code) == (3, 2, 0)
    assert "the app has no task 'shop.duoble': did you mean 'shop.double'? (--force" in refused.err
    assert names_in("images") == []
    assert len(names_in("default")) == 1


# Options as flags, with the fields of the message that they set.
_FLAGS: Final[dict[str, tuple[tuple[str, ...], dict[str, object]]]] = {
    "priority": (("--priority", "5"), {"priority": 5}),
    "tenant": (("--tenant", "acme"), {"tenant": "acme"}),
    "idempotency_key": (("--key", "17"), {"key": "17"}),
    "timeout": (("--run-timeout", "90s"), {"run": {"timeout": 90_000}}),
    "max_attempts": (("--max-attempts", "3"), {"run": {"max_attempts": 3}}),
    "retry": (
        ("--retry", '{"backoff": "constant", "base": "10s"}'),
        {"run": {"backoff": "constant", "base": 10_000}},
    ),
    "guarantee": (("--guarantee", "at_most_once"), {"run": {"once": True}}),
}
_WITHOUT: Final = {
    "queue": "in every call of the test",
    "delay": "see the test of the delay",
    "order_key": "needs an ordered queue of the app",
    "eta": "people at a terminal give --delay",
    "expires": "for programs that send",
    "job_id": "for programs that send",
    "lane": "the command is that of the broker",
    "meta": "for programs that send",
    "headers": "for programs that send",
}


def test_every_option_of_a_call_is_a_flag_or_has_a_reason_not_to_be() -> None:
    assert _FLAGS.keys() | _WITHOUT.keys() == CallOptions.__annotations__.keys()


@pytest.mark.parametrize("name", _FLAGS)
def test_an_option_of_a_sent_job_is_in_its_message(taskmq: Here, name: str) -> None:
    flags, fields = _FLAGS[name]
    declare("images")

    _job_id_of(taskmq("-o", "json", "send", "t", "--queue", "images", *flags))

    (body,) = bodies_in("images")
    assert {field: body[field] for field in fields} == fields


def test_a_malformed_pace_of_retries_is_refused_before_anything_is_sent(taskmq: Here) -> None:
    declare("images")

    refused = taskmq("send", "t", "--queue", "images", "--retry", '{"backoff": "fast"}')

    assert refused.code == 2
    assert "'fast'" in refused.err
    assert names_in("images") == []


@pytest.mark.parametrize(("priority", "queue"), [("9", "images.p.high"), ("5", "images"), ("0", "images.p.low")])
def test_a_priority_selects_the_class(taskmq: Here, priority: str, queue: str) -> None:
    declare("images")

    job = _job_id_of(taskmq("-o", "json", "send", "t", "--queue", "images", "--priority", priority))

    assert names_in(queue) == [job]


def test_a_table_is_one_field_per_line(taskmq: Here) -> None:
    declare("images")

    result = taskmq("send", "shop.double", "--queue", "images")

    assert [line.split()[0] for line in result.out.splitlines()] == ["job", "task", "queue"]


def test_jsonl_is_one_line(taskmq: Here) -> None:
    declare("images")

    result = taskmq("-o", "jsonl", "send", "shop.double", "--queue", "images")

    (row,) = result.rows
    assert row["task"] == "shop.double"


def test_the_sent_message_contains_the_arguments_and_the_delay(taskmq: Here) -> None:
    declare("images")
    call = ["t", "--queue", "images", "--args", "[1, {}]", "--kwargs", '{"b": null}', "--delay", "1ms"]

    _job_id_of(taskmq("-o", "json", "send", *call))

    (body,) = eventually(lambda: bodies_in("images"), "the delayed task", within=PATIENCE)
    assert (body["args"], body["kwargs"]) == ([1, {}], {"b": None})
    assert body["eta"] == body["enqueued"] + 1


def test_a_missing_queue_is_not_found_and_not_created(taskmq: Here) -> None:
    declare("images")

    result = taskmq("send", "shop.double", "--queue", "imags")

    assert (result.code, result.out) == (3, "")
    assert "'imags' does not exist" in result.err
    assert not exists("imags")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["t", "--args", "[1"], "--args is not valid JSON, write for example '[1, \"two\"]'"),
        (["t", "--args", "1,2"], "--args is not valid JSON"),
        (["t", "--args", '{"a": 1}'], "--args must be a JSON array"),
        (["t", "--kwargs", "[1]"], "--kwargs must be a JSON object"),
        (["t", "--kwargs", "{1: 2}"], '--kwargs is not valid JSON, write for example \'{"name": "value"}\''),
        (["no such name"], "task name"),
        (["t", "--queue", "taskmq.parking"], "queue name"),
        (["t", "--priority", "10"], "priority=10"),
        (["t", "--delay", "soon"], "delay"),
        (["t", "--wait", "--timeout", "soon"], "timeout"),
        (["t", "--wait", "--timeout", "3"], "timeout='3' has no unit: for seconds write '3s'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_impossible_message_is_wrong_usage(taskmq: Here, tokens: list[str], words: str) -> None:
    declare("default")

    result = taskmq("send", *tokens)

    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert names_in("default") == []


def test_waiting_without_a_state_is_refused_before_anything_is_sent(taskmq: Here) -> None:
    result = taskmq("--url", "amqp://guest@127.0.0.1:1/", "send", "t", "--wait")

    assert (result.code, result.out) == (2, "")
    assert "--state" in result.err


def test_waiting_prints_the_result(send: Here) -> None:
    result = send("-o", "json", "send", "shop.double", "--queue", "images", "--args", "[21]", "--wait")

    assert (result.code, result.err) == (0, "")
    assert (result.data["task"], result.data["result"]) == ("shop.double", 42)


def test_a_delayed_task_is_waited_for_as_well(send: Here) -> None:
    result = send(
        "-o", "json", "send", "shop.double", "--queue", "images", "--args", "[4]", "--delay", "300ms", "--wait"
    )

    assert (result.code, result.data["result"]) == (0, 8)


def test_a_failing_job_is_exit_code_7_with_its_error(send: Here) -> None:
    result = send("send", "shop.fail", "--queue", "images", "--args", '["alas"]', "--wait")

    assert (result.code, result.out) == (7, "")
    assert "ValueError: alas" in result.err


def test_waiting_ends_at_the_timeout_with_exit_code_124(send: Here) -> None:
    result = send("send", "shop.sleep", "--queue", "images", "--args", "[2]", "--wait", "--timeout", "200ms")

    assert (result.code, result.out) == (124, "")
    assert "has not ended" in result.err


def test_ctrl_c_while_waiting_is_exit_code_130(home: Path) -> None:
    declare("images")

    with Started(home, "send", "t", "--queue", "images", "--wait") as waiting:
        eventually(lambda: names_in("images"), "the task being sent", within=PATIENCE)

        code = waiting.signal_and_wait(signal.SIGINT)

    assert code == 130
    assert "Traceback" not in waiting.said


def test_standard_output_contains_only_data(worker_folder: Path) -> None:
    result = run_process(
        worker_folder, "-v", "-o", "json", "send", "shop.double", "--queue", "images", "--args", "[1]", "--wait"
    )

    assert result.data["result"] == 2
