"""`taskmq dlq`."""

import subprocess
from collections import Counter
from pathlib import Path

import pika  # type: ignore[import-untyped]  # it carries no types
import pytest

from tests.cli.kit import (
    PATIENCE,
    Here,
    Started,
    bury,
    command,
    declare,
    environment,
    fill,
    names_in,
    run_on_terminal,
    run_process,
)
from tests.servers import eventually

_NAMES = [f"job-{number}" for number in range(6)]


@pytest.fixture
def buried(home: Path) -> None:
    """Six dead letters of `images`, the even ones of another task."""
    declare("images")
    for number, name in enumerate(_NAMES):
        bury("images.dlq", [name], task="shop.double" if number % 2 else "shop.fail")


@pytest.mark.usefixtures("buried")
def test_dead_letters_are_listed_oldest_first_and_stay(taskmq: Here) -> None:
    result = taskmq("dlq", "list", "images", "-o", "json")

    assert (result.code, result.err) == (0, "")
    assert [row["job"] for row in result.data] == _NAMES
    assert result.data[0] == {
        "job": "job-0",
        "task": "shop.fail",
        "attempt": 3,
        "reason": "error",
        "error": "ValueError: no",
        "died": "2023-11-14T22:13:20Z",
    }
    assert names_in("images.dlq") == _NAMES


@pytest.mark.usefixtures("buried")
def test_only_so_many_are_listed_as_asked_for(taskmq: Here) -> None:
    result = taskmq("dlq", "list", "images", "--limit", "2", "-o", "jsonl")

    assert [row["job"] for row in result.rows] == _NAMES[:2]


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_no_dead_letters_are_no_error(taskmq: Here, output: str) -> None:
    declare("images")

    result = taskmq("dlq", "list", "images", "-o", output)

    assert result.code == 0
    assert result.out.split() == {
        "table": ["job", "task", "attempt", "reason", "error", "died"], "json": ["[]"], "jsonl": []
    }[output]  # fmt: skip


@pytest.mark.parametrize("tokens", [["list"], ["replay"], ["purge", "--yes"]], ids=" ".join)
def test_the_dead_letters_of_a_queue_that_does_not_exist_are_not_found(taskmq: Here, tokens: list[str]) -> None:
    result = taskmq("dlq", tokens[0], "nowhere", *tokens[1:])

    assert (result.code, result.out) == (3, "")
    assert "nowhere.dlq" in result.err


@pytest.mark.parametrize(
    "error", ["TypeError: list[int] [/x] [bold]", "a\nb\tc", "\N{SNOWMAN}", "\x1b[31mred"], ids=repr
)
def test_any_text_is_shown_as_it_is(home: Path, taskmq: Here, error: str) -> None:
    declare("images")
    bury("images.dlq", ["job"], error=error)

    as_json = taskmq("dlq", "list", "images", "-o", "json")
    piped = taskmq("dlq", "list", "images")
    on_terminal = run_on_terminal(home, "dlq", "list", "images", columns=200)

    assert as_json.data[0]["error"] == error
    assert len(piped.out.splitlines()) == 2
    assert error.replace("\n", " ") in piped.out
    assert on_terminal.code == 0
    assert error.split(maxsplit=1)[0].replace("\x1b", "\\x1b") in on_terminal.out
    assert "\x1b" not in on_terminal.out


@pytest.mark.usefixtures("buried")
def test_a_piped_list_is_not_cut(home: Path) -> None:
    error = "ValueError: " + "long " * 100
    bury("images.dlq", ["job-6"], error=error)

    result = run_process(home, "dlq", "list", "images", env={"COLUMNS": "40"})

    assert error.strip() in result.out
    assert len(result.out.splitlines()) == 8


@pytest.mark.usefixtures("buried")
def test_one_dead_letter_is_shown_with_its_message_and_traceback(taskmq: Here) -> None:
    as_json = taskmq("dlq", "show", "images", "job-3", "-o", "json")
    as_line = taskmq("dlq", "show", "images", "job-3", "-o", "jsonl")
    as_text = taskmq("dlq", "show", "images", "job-3")

    assert as_json.data["job"] == "job-3"
    assert '"args": [7]' in as_json.data["body"]
    assert as_json.data["worker"] == "host:1"
    assert as_line.rows == [as_json.data]
    assert "traceback:\nTraceback (most recent call last):\n  no\n" in as_text.out


@pytest.mark.usefixtures("buried")
def test_a_dead_letter_that_is_not_there_is_not_found(taskmq: Here) -> None:
    result = taskmq("dlq", "show", "images", "job-9")

    assert (result.code, result.out) == (3, "")
    assert "job-9" in result.err


@pytest.mark.usefixtures("buried")
def test_a_replay_keeps_the_order(taskmq: Here) -> None:
    result = taskmq("dlq", "replay", "images")

    assert (result.code, result.out, result.err) == (0, "", "6 replayed\n")
    assert names_in("images") == _NAMES
    assert names_in("images.dlq") == []


@pytest.mark.usefixtures("buried")
def test_a_replay_of_one_task_leaves_the_others_in_their_order(taskmq: Here) -> None:
    result = taskmq("dlq", "replay", "images", "--task", "shop.fail")

    assert (result.code, result.err) == (0, "3 replayed\n")
    assert names_in("images") == _NAMES[::2]
    assert names_in("images.dlq") == _NAMES[1::2]


@pytest.mark.usefixtures("buried")
def test_a_replay_of_one_job(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--job", "job-4").code == 0

    assert names_in("images") == ["job-4"]


@pytest.mark.usefixtures("buried")
def test_a_replay_of_a_job_that_is_not_there_is_not_found(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--job", "job-9").code == 3

    assert names_in("images.dlq") == _NAMES


@pytest.mark.usefixtures("buried")
def test_a_replay_looks_at_no_more_letters_than_asked_for(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--limit", "2").err == "2 replayed\n"

    assert names_in("images") == _NAMES[:2]
    assert names_in("images.dlq") == _NAMES[2:]


@pytest.mark.usefixtures("buried")
def test_purging_deletes_the_dead_letters_alone(taskmq: Here) -> None:
    bury("images", ["waiting"])

    result = taskmq("dlq", "purge", "images", "--yes")

    assert (result.code, result.out, result.err) == (0, "", "6 dead letters deleted\n")
    assert names_in("images") == ["waiting"]
    assert names_in("images.dlq") == []


def test_the_replay_of_jobs_that_die_again_at_once_ends(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    names = [f"{number:03}" for number in range(120)]
    bury("images.dlq", names, task="shop.fail")

    with Started(shop, "worker", "shop:app", "-Q", "images") as worker:
        worker.says("waiting for jobs")
        result = taskmq("dlq", "replay", "images")
        eventually(lambda: len(names_in("images.dlq")) == 120, "all being dead again", within=PATIENCE)

    assert (result.code, result.err) == (0, "120 replayed\n")
    letters = taskmq("dlq", "list", "images", "--limit", "500", "-o", "json").data
    assert Counter(row["job"] for row in letters) == Counter(names)
    assert {row["attempt"] for row in letters} == {1}


@pytest.mark.usefixtures("buried")
def test_a_list_whose_reader_has_gone_ends_quietly(home: Path) -> None:
    process = subprocess.Popen(
        command("dlq", "list", "images", "-o", "jsonl"),
        cwd=home,
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert (process.returncode, said) == (1, "")
    assert names_in("images.dlq") == _NAMES


@pytest.mark.rabbitmq
def test_dead_letters_at_rabbitmq_are_listed_and_replayed_in_their_order(taskmq: Here, amqp_url: str) -> None:
    names = [f"{number:03}" for number in range(100)]
    declare("images", url=amqp_url)
    bury("images.dlq", names, url=amqp_url)

    listed = taskmq("--url", amqp_url, "dlq", "list", "images", "--limit", "500", "-o", "json")
    again = taskmq("--url", amqp_url, "dlq", "list", "images", "--limit", "500", "-o", "json")
    replayed = taskmq("--url", amqp_url, "dlq", "replay", "images")

    assert [row["job"] for row in listed.data] == [row["job"] for row in again.data] == names
    assert (replayed.code, replayed.err) == (0, "100 replayed\n")
    assert names_in("images", url=amqp_url) == names


@pytest.mark.rabbitmq
def test_letters_that_rabbitmq_itself_put_there_can_be_looked_at_and_replayed(taskmq: Here, amqp_url: str) -> None:
    declare("images", url=amqp_url)
    fill("images.p.high", ["a", "b"], url=amqp_url)
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        for _ in range(2):
            method, _properties, _body = channel.basic_get("images.p.high")
            channel.basic_nack(method.delivery_tag, requeue=False)
    eventually(lambda: names_in("images.dlq", url=amqp_url) == ["a", "b"], "the dead letters", within=PATIENCE)

    shown = taskmq("--url", amqp_url, "dlq", "show", "images", "a", "-o", "json")
    replayed = taskmq("--url", amqp_url, "dlq", "replay", "images")

    assert (shown.data["reason"], shown.data["died"], shown.data["queue"]) == ("", "", "images")
    assert (replayed.code, replayed.err) == (0, "2 replayed\n")
    assert names_in("images", url=amqp_url) == ["a", "b"]
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        _, properties, _ = connection.channel().basic_get("images")
    assert "x-death" not in properties.headers


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("queue", ["taskmq.parking", "taskmq.unroutable"])
def test_the_shared_queues_of_lost_messages_are_looked_at_like_dead_letters(taskmq: Here, queue: str) -> None:
    declare("images")
    bury(queue, ["lost"])

    listed = taskmq("dlq", "list", queue, "-o", "jsonl")
    purged = taskmq("dlq", "purge", queue, "--yes")

    assert (listed.code, listed.err) == (0, "")
    assert '"lost"' in listed.out
    assert (purged.code, purged.err) == (0, "1 dead letters deleted\n")


@pytest.mark.usefixtures("home")
def test_a_parked_message_is_replayed_to_where_it_came_from(taskmq: Here) -> None:
    declare("images")
    bury("taskmq.parking", ["lost"], headers={"x-taskmq-origin": "images"})

    result = taskmq("dlq", "replay", "taskmq.parking")

    assert (result.code, result.err) == (0, "1 replayed\n")
    assert names_in("images") == ["lost"]


@pytest.mark.usefixtures("home")
def test_an_unroutable_message_is_not_replayed_because_nobody_knows_where_to(taskmq: Here) -> None:
    declare("images")
    bury("taskmq.unroutable", ["lost"])

    result = taskmq("dlq", "replay", "taskmq.unroutable")

    assert result.code == 2
    assert "taskmq.unroutable" in result.err
    assert names_in("taskmq.unroutable") == ["lost"]
