"""`taskmq dlq`."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pika  # type: ignore[import-untyped]  # it carries no types
import pytest

from taskmq.cli.progress import progress
from tests.cli.kit import (
    PATIENCE,
    Here,
    Started,
    bodies_in,
    bury,
    command,
    declare,
    environment,
    fill,
    names_in,
    run_here,
    run_on_terminal,
)
from tests.servers import eventually

_NAMES = [f"job-{number}" for number in range(6)]


@pytest.fixture
def buried_letters(home: Path) -> None:
    """Six dead letters of `images`, the even ones of another task."""
    declare("images")
    for number, name in enumerate(_NAMES):
        bury("images.dlq", [name], task="shop.double" if number % 2 else "shop.fail")


@pytest.mark.usefixtures("buried_letters")
def test_dead_letters_are_listed_oldest_first_and_stay(taskmq: Here) -> None:
    result = taskmq("dlq", "list", "images", "-o", "json")

    assert (result.code, result.err) == (0, "")
    assert [row["job_id"] for row in result.data] == _NAMES
    facts = {name: result.data[0][name] for name in ("tenant", "task", "attempt", "reason", "error", "died", "body")}
    assert facts == {
        "tenant": "",
        "task": "shop.fail",
        "attempt": 3,
        "reason": "error",
        "error": "ValueError: no",
        "died": "2023-11-14T22:13:20.000Z",
        "body": None,
    }
    assert names_in("images.dlq") == _NAMES


def test_a_queue_without_letters_lists_none_and_names_queues_with_letters(taskmq: Here) -> None:
    declare("images")
    nothing = taskmq("dlq", "list", "images", "-o", "json")
    bury("taskmq.unroutable", ["lost"])

    elsewhere = taskmq("dlq", "list", "images", "-o", "json")

    assert (nothing.code, nothing.data, nothing.err) == (0, [], "")
    assert (elsewhere.code, elsewhere.data) == (0, [])
    assert "1 unroutable messages: taskmq dlq list taskmq.unroutable" in elsewhere.err


def test_without_a_queue_the_letters_of_all_queues_of_the_app_are_listed_and_grouped(
    shop: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare("images", "ticks", "foreign")
    bury("images.dlq", ["a", "b"])
    bury("ticks.dlq", ["c"])
    bury("foreign.dlq", ["d"])
    bury("taskmq.parking", ["e"])
    monkeypatch.setenv("TASKMQ_APP", "shop:app")

    rows = taskmq("dlq", "list", "-o", "json").data
    some = taskmq("dlq", "list", "--limit", "1", "-o", "json").data
    groups = taskmq("dlq", "groups", "-o", "json").data

    places = [("images", "a"), ("images", "b"), ("ticks", "c"), ("taskmq.parking", "e")]
    assert [(row["letter_of"], row["job_id"]) for row in rows] == places
    assert [row["job_id"] for row in some] == ["a"]
    assert [(row["letter_of"], row["count"]) for row in groups] == [
        ("images", 2),
        ("ticks", 1),
        ("taskmq.parking", 1),
    ]


@pytest.mark.usefixtures("home")
def test_a_command_without_a_queue_and_an_app_is_refused(taskmq: Here) -> None:
    result = taskmq("dlq", "list")

    assert result.code == 2
    assert "no queue given: name it, or pass its app with --app" in result.err


@pytest.mark.usefixtures("buried_letters")
def test_the_list_is_limited_as_requested(taskmq: Here) -> None:
    result = taskmq("dlq", "list", "images", "--limit", "2", "-o", "jsonl")

    assert [row["job_id"] for row in result.rows] == _NAMES[:2]


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_a_list_without_dead_letters_is_not_an_error(taskmq: Here, output: str) -> None:
    declare("images")

    result = taskmq("dlq", "list", "images", "-o", output)

    assert result.code == 0
    assert result.out.split() == {
        "table": ["job", "tenant", "task", "attempt", "reason", "error", "died"], "json": ["[]"], "jsonl": []
    }[output]  # fmt: skip


@pytest.mark.parametrize("tokens", [["list"], ["replay"], ["purge", "--yes"]], ids=" ".join)
def test_the_dead_letters_of_a_missing_queue_are_not_found(taskmq: Here, tokens: list[str]) -> None:
    result = taskmq("dlq", tokens[0], "nowhere", *tokens[1:])

    assert (result.code, result.out) == (3, "")
    assert "nowhere.dlq" in result.err


@pytest.mark.parametrize(
    "error", ["TypeError: list[int] [/x] [bold]", "a\nb\tc", "\N{SNOWMAN}", "\x1b[31mred"], ids=repr
)
def test_any_text_is_shown_unchanged(home: Path, taskmq: Here, error: str) -> None:
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


@pytest.mark.usefixtures("buried_letters")
def test_a_piped_list_is_not_truncated(home: Path) -> None:
    error = "ValueError: " + "long " * 100
    bury("images.dlq", ["job-6"], error=error)

    result = run_here(home, "dlq", "list", "images", env={"COLUMNS": "40"})

    assert error.strip() in result.out
    assert len(result.out.splitlines()) == 8


@pytest.mark.usefixtures("buried_letters")
def test_one_dead_letter_is_shown_with_its_message_and_traceback(taskmq: Here) -> None:
    as_json = taskmq("dlq", "show", "images", "job-3", "-o", "json")
    as_line = taskmq("dlq", "show", "images", "job-3", "-o", "jsonl")
    as_text = taskmq("dlq", "show", "images", "job-3")

    assert as_json.data["job_id"] == "job-3"
    assert '"args": [7]' in as_json.data["body"]
    assert as_json.data["worker"] == "host:1"
    assert as_line.rows == [as_json.data]
    assert "traceback:\nTraceback (most recent call last):\n  no\n" in as_text.out


@pytest.mark.usefixtures("buried_letters")
def test_a_missing_dead_letter_is_not_found(taskmq: Here) -> None:
    result = taskmq("dlq", "show", "images", "job-9")

    assert (result.code, result.out) == (3, "")
    assert "job-9" in result.err


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_keeps_the_order(taskmq: Here) -> None:
    result = taskmq("dlq", "replay", "images")

    assert (result.code, result.out, result.err) == (0, "", "6 replayed\n")
    assert names_in("images") == _NAMES
    assert names_in("images.dlq") == []


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_of_one_task_leaves_the_others_in_order(taskmq: Here) -> None:
    result = taskmq("dlq", "replay", "images", "--task", "shop.fail")

    assert (result.code, result.err) == (0, "3 replayed\n")
    assert names_in("images") == _NAMES[::2]
    assert names_in("images.dlq") == _NAMES[1::2]


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_of_one_job(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--job", "job-4").code == 0

    assert names_in("images") == ["job-4"]


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_of_a_missing_job_is_not_found(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--job", "job-9").code == 3

    assert names_in("images.dlq") == _NAMES


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_reads_no_more_letters_than_requested(taskmq: Here) -> None:
    assert taskmq("dlq", "replay", "images", "--limit", "2").err == "2 replayed\n"

    assert names_in("images") == _NAMES[:2]
    assert names_in("images.dlq") == _NAMES[2:]


@pytest.mark.usefixtures("buried_letters")
def test_purging_deletes_only_the_dead_letters(taskmq: Here) -> None:
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
    assert Counter(row["job_id"] for row in letters) == Counter(names)
    assert {row["attempt"] for row in letters} == {1}


@pytest.mark.nightly("tests/cli/test_usage.py::test_a_closed_pipe_ends_a_command_quietly")
@pytest.mark.usefixtures("buried_letters")
def test_a_list_with_a_closed_pipe_ends_quietly(home: Path) -> None:
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
def test_dead_letters_in_rabbitmq_are_listed_and_replayed_in_order(taskmq: Here, amqp_url: str) -> None:
    names = [f"{number:03}" for number in range(100)]
    declare("images", url=amqp_url)
    bury("images.dlq", names, url=amqp_url)

    listed = taskmq("--url", amqp_url, "dlq", "list", "images", "--limit", "500", "-o", "json")
    again = taskmq("--url", amqp_url, "dlq", "list", "images", "--limit", "500", "-o", "json")
    replayed = taskmq("--url", amqp_url, "dlq", "replay", "images")

    assert [row["job_id"] for row in listed.data] == [row["job_id"] for row in again.data] == names
    assert (replayed.code, replayed.err) == (0, "100 replayed\n")
    assert names_in("images", url=amqp_url) == names


@pytest.mark.nightly("tests/integration/test_rabbitmq_letters.py")
@pytest.mark.rabbitmq
def test_letters_created_by_rabbitmq_can_be_inspected_and_replayed(taskmq: Here, amqp_url: str) -> None:
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

    assert (shown.data["reason"], shown.data["queue"]) == ("rejected", "images.p.high")
    assert shown.data["died"] >= "2026-01-01T00:00:00Z"
    assert (replayed.code, replayed.err) == (0, "2 replayed\n")
    assert names_in("images.p.high", url=amqp_url) == ["a", "b"]
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        _, properties, _ = connection.channel().basic_get("images.p.high")
    assert "x-death" not in properties.headers


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("queue", ["taskmq.parking", "taskmq.unroutable"])
def test_the_shared_queues_of_unroutable_messages_are_inspected_like_dead_letters(taskmq: Here, queue: str) -> None:
    declare("images")
    bury(queue, ["lost"])

    listed = taskmq("dlq", "list", queue, "-o", "jsonl")
    purged = taskmq("dlq", "purge", queue, "--yes")

    assert (listed.code, listed.err) == (0, "")
    assert '"lost"' in listed.out
    assert (purged.code, purged.err) == (0, "1 dead letters deleted\n")


@pytest.mark.usefixtures("home")
def test_a_parked_message_is_replayed_to_its_origin(taskmq: Here) -> None:
    declare("images")
    bury("taskmq.parking", ["lost"], headers={"x-taskmq-origin": "images"})

    result = taskmq("dlq", "replay", "taskmq.parking")

    assert (result.code, result.err) == (0, "1 replayed\n")
    assert names_in("images") == ["lost"]


@pytest.mark.usefixtures("home")
def test_an_unroutable_message_without_a_destination_is_replayed_to_a_named_queue(
    taskmq: Here,
) -> None:
    declare("images")
    bury("taskmq.unroutable", ["lost"])

    unnamed = taskmq("dlq", "replay", "taskmq.unroutable")
    left = names_in("taskmq.unroutable")
    named = taskmq("dlq", "replay", "taskmq.unroutable", "--to", "images")

    assert (unnamed.code, unnamed.err.splitlines()[0], left) == (1, "0 replayed", ["lost"])
    assert "--to" in unnamed.err
    assert (named.code, named.err) == (0, "1 replayed\n")
    assert names_in("images") == ["lost"]


def _of_two_failures(home: Path) -> None:
    """Bury six letters: the even ones of an old error, the odd ones of a recent one."""
    declare("images", "other")
    now = int(time.time() * 1000)
    for number, name in enumerate(_NAMES):
        old: dict[str, str | int] = {
            "x-taskmq-reason": "error",
            "x-taskmq-error": f"OSError: disk {number}",
            "x-taskmq-error-type": "OSError",
            "x-taskmq-died": now - 7_200_000,
        }
        young = {**old, "x-taskmq-reason": "timeout", "x-taskmq-error": "TaskTimeout: 30 s", "x-taskmq-died": now}
        young["x-taskmq-error-type"] = "TaskTimeout"
        task = "shop.double" if number % 2 else "shop.fail"
        bury("images.dlq", [name], task=task, headers=young if number % 2 else old)


_FILTERS = [
    (["--task", "shop.fail"], _NAMES[::2]),
    (["--task", "shop.d*"], _NAMES[1::2]),
    (["--error", "OSError"], _NAMES[::2]),
    (["--error", "*disk 2"], ["job-2"]),
    (["--reason", "timeout"], _NAMES[1::2]),
    (["--job", "job-4"], ["job-4"]),
    (["--older-than", "1h"], _NAMES[::2]),
    (["--newer-than", "1h"], _NAMES[1::2]),
    (["--newer-than", "1h", "--depth", "3"], ["job-1"]),
    (["--older-than", "1h", "--limit", "2"], ["job-0", "job-2"]),
]


_LATER = pytest.mark.nightly("tests/unit/operations/dead_letters")


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [*(pytest.param(*each, marks=_LATER) for each in _FILTERS[3:-2]), *_FILTERS[:3], *_FILTERS[-2:]],
    ids=lambda value: " ".join(value) if value else "",
)
def test_the_same_filters_select_letters_for_every_command(
    home: Path, taskmq: Here, filters: list[str], chosen: list[str]
) -> None:
    _of_two_failures(home)
    rest = [name for name in _NAMES if name not in chosen]

    listed = taskmq("dlq", "list", "images", *filters, "-o", "json")
    exported = taskmq("dlq", "export", "images", *filters)
    would = taskmq("dlq", "purge", "images", *filters, "--dry-run", "-o", "json")
    might = taskmq("dlq", "replay", "images", *filters, "--dry-run", "-o", "json")
    assert names_in("images.dlq") == _NAMES
    replayed = taskmq("dlq", "replay", "images", *filters)

    assert [row["job_id"] for row in listed.data] == chosen
    assert [row["job"] for row in exported.rows] == chosen
    assert [row["job_id"] for row in would.data] == chosen
    assert [(row["job_id"], row["to"]) for row in might.data] == [(name, "images") for name in chosen]
    assert (replayed.code, replayed.err) == (0, f"{len(chosen)} replayed\n")
    assert (names_in("images"), names_in("images.dlq")) == (chosen, rest)


@pytest.mark.parametrize(("filters", "chosen"), _FILTERS[:3], ids=lambda value: " ".join(value) if value else "")
def test_purging_with_a_filter_deletes_only_the_selected_letters(
    home: Path, taskmq: Here, filters: list[str], chosen: list[str]
) -> None:
    _of_two_failures(home)

    refused = taskmq("dlq", "purge", "images", *filters)
    assert (refused.code, names_in("images.dlq")) == (1, _NAMES)
    purged = taskmq("dlq", "purge", "images", *filters, "--yes")

    assert (purged.code, purged.err) == (0, f"{len(chosen)} dead letters deleted\n")
    assert names_in("images.dlq") == [name for name in _NAMES if name not in chosen]


def test_failures_are_grouped_and_one_of_them_is_replayed_by_its_fingerprint(home: Path, taskmq: Here) -> None:
    _of_two_failures(home)

    groups = taskmq("dlq", "groups", "images", "-o", "json").data
    shown = taskmq("dlq", "groups", "images")
    replayed = taskmq("dlq", "replay", "images", "--fingerprint", groups[0]["fingerprint"][:6])

    assert [(row["count"], row["task"], row["error_type"], row["sample"]) for row in groups] == [
        (3, "shop.fail", "OSError", "job-0"),
        (3, "shop.double", "TaskTimeout", "job-1"),
    ]
    assert groups[0]["first"] <= groups[0]["last"] < groups[1]["first"]
    assert shown.out.splitlines()[0].split() == [
        "count",
        "jobs",
        "tenants",
        "first",
        "last",
        "task",
        "error",
        "sample",
        "fingerprint",
    ]
    assert replayed.err == "3 replayed\n"
    assert names_in("images") == _NAMES[::2]


def test_an_export_has_the_whole_message_and_is_not_overwritten(home: Path, taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["a", "b"])

    first = taskmq("dlq", "export", "images", "--file", "letters.jsonl")
    again = taskmq("dlq", "export", "images", "--file", "letters.jsonl")
    nowhere = taskmq("dlq", "export", "images", "--file", "no/such/folder")

    assert (first.code, first.out, first.err) == (0, "", "2 dead letters exported\n")
    letters = [json.loads(line) for line in (home / "letters.jsonl").read_text().splitlines()]
    assert [letter["job"] for letter in letters] == ["a", "b"]
    assert json.loads(letters[0]["body"]) == {"id": "a", "task": "shop.double", "args": [7], "attempt": 3}
    assert letters[0]["traceback"] == "Traceback (most recent call last):\n  no"
    assert letters[0]["headers"]["x-taskmq-worker"] == "host:1"
    assert (again.code, nowhere.code) == (2, 2)
    assert "letters.jsonl exists" in again.err
    assert names_in("images.dlq") == ["a", "b"]


def test_an_export_to_a_terminal_is_harmless_json_without_a_bar(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmq.cli.dead_letters._watch", progress)
    declare("images")
    hostile = "\x9b2J\x1b]0;owned\x07\u202e\u2028\x7f"
    bury("images.dlq", ["a"], headers={"x-taskmq-error": hostile})

    shown = run_on_terminal(home, "dlq", "export", "images", columns=20_000)

    line, summary = shown.out.splitlines()
    assert summary == "1 dead letters exported"
    assert json.loads(line)["error"] == hostile
    assert line.isprintable()


def test_a_letter_shows_its_error_type_its_times_and_its_failure(home: Path, taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["a"], headers={"x-taskmq-error-type": "E", "x-taskmq-started": 1_700_000_000_000})

    shown = taskmq("dlq", "show", "images", "a", "-o", "json").data

    assert (shown["error_type"], shown["started"], shown["enqueued"]) == ("E", "2023-11-14T22:13:20.000Z", None)
    assert taskmq("dlq", "list", "images", "--fingerprint", shown["fingerprint"], "-o", "json").data


def test_a_letter_of_a_job_that_killed_its_workers_shows_its_number_of_starts(home: Path, taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["poison"], headers={"x-taskmq-reason": "worker_lost", "x-taskmq-starts": 3})
    bury("images.dlq", ["other"])

    assert taskmq("dlq", "show", "images", "poison", "-o", "json").data["starts"] == 3
    assert "starts" not in taskmq("dlq", "show", "images", "other").out


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_goes_to_the_named_queue_and_keeps_the_attempts_on_request(taskmq: Here) -> None:
    declare("other")

    result = taskmq("dlq", "replay", "images", "--to", "other", "--keep-attempts", "--rate", "1000/s", "--limit", "4")

    assert (result.code, result.err) == (0, "4 replayed\n")
    assert [(body["id"], body["attempt"]) for body in bodies_in("other")] == [(name, 3) for name in _NAMES[:4]]


@pytest.mark.usefixtures("home")
def test_a_job_with_several_letters_is_replayed_once_and_every_command_says_so(taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["a", "b", "a", "a"])

    listed = taskmq("dlq", "list", "images", "-o", "json")
    grouped = taskmq("dlq", "groups", "images", "-o", "json")
    dry = taskmq("dlq", "replay", "images", "--dry-run", "-o", "json")
    done = taskmq("dlq", "replay", "images")

    assert listed.err == "4 letters of 2 jobs: replay sends each job once\n"
    assert [(row["count"], row["jobs"]) for row in grouped.data] == [(4, 2)]
    assert [row["job_id"] for row in dry.data] == ["a", "b"]
    assert "2 would be dropped: further letters of the same jobs" in dry.err
    assert (done.code, done.err) == (0, "2 replayed\n2 dropped: further letters of the same jobs\n")
    assert names_in("images") == ["a", "b"]


@pytest.mark.usefixtures("home")
def test_all_letters_of_a_job_are_replayed_with_duplicates(taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["a", "b", "a"])

    assert taskmq("dlq", "replay", "images", "--duplicates").err == "3 replayed\n"
    assert names_in("images") == ["a", "b", "a"]


@pytest.mark.usefixtures("home")
def test_letters_replayed_too_often_are_replayed_only_by_force(taskmq: Here) -> None:
    declare("images")
    bury("images.dlq", ["young"], headers={"x-taskmq-replayed": 2})
    bury("images.dlq", ["old"], headers={"x-taskmq-replayed": 3})

    dry = taskmq("dlq", "replay", "images", "--dry-run", "-o", "json")
    guarded = taskmq("dlq", "replay", "images")
    forced = taskmq("dlq", "replay", "images", "--force")

    assert [row["job_id"] for row in dry.data] == ["young"]
    assert "1 left: already replayed 3 times; use --force" in dry.err
    assert (guarded.code, guarded.err.splitlines()[0]) == (1, "1 replayed")
    assert "1 left: already replayed 3 times; use --force" in guarded.err
    assert (forced.code, forced.err) == (0, "1 replayed\n")
    assert names_in("images") == ["young", "old"]


@pytest.mark.nightly("tests/cli/test_dlq.py::test_letters_replayed_too_often_are_replayed_only_by_force")
def test_a_job_that_dies_again_and_again_is_replayed_three_times(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    bury("images.dlq", ["a"], task="shop.fail")

    with Started(shop, "worker", "shop:app", "-Q", "images") as worker:
        worker.says("waiting for jobs")
        codes: list[int] = []
        for _ in range(4):
            codes.append(taskmq("dlq", "replay", "images").code)
            eventually(lambda: names_in("images.dlq") == ["a"], "being dead again", within=PATIENCE)

    assert codes == [0, 0, 0, 1]
    assert taskmq("dlq", "show", "images", "a", "-o", "json").data["replayed"] == 3


@pytest.mark.usefixtures("buried_letters")
def test_a_replay_to_a_missing_destination_reports_its_progress_and_is_not_found(taskmq: Here) -> None:
    bury("images.dlq", ["lost"], headers={"x-taskmq-origin": "gone"})

    result = taskmq("dlq", "replay", "images")

    assert result.code == 3
    assert result.err.splitlines()[0] == "6 replayed"
    assert "1 of 7" in result.err
    assert "'gone'" in result.err
    assert names_in("images.dlq") == ["lost"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "tokens",
    [
        ["list", "images", "--older-than", "soon"],
        ["list", "images", "--limit", "0"],
        ["list", "images", "--depth", "-1"],
        ["replay", "images", "--rate", "0/s"],
        ["replay", "images", "--rate", "fast"],
        ["replay", "images", "--to", "amq.x"],
        ["purge", "amq.x", "--dry-run"],
        ["export", "amq.x"],
    ],
    ids=" ".join,
)
def test_impossible_options_are_wrong_usage(taskmq: Here, tokens: list[str]) -> None:
    assert taskmq("dlq", *tokens).code == 2


@pytest.mark.nightly("tests/cli/test_progress.py")
def test_a_terminal_shows_the_progress(home: Path) -> None:
    declare("images")
    bury("images.dlq", [f"{number:04}" for number in range(1_000)])

    result = run_on_terminal(home, "dlq", "replay", "images", "--rate", "4/s", "--limit", "6", columns=120)

    assert result.code == 0
    assert "replaying letters" in result.out
    assert "6/6" in result.out
    assert "/1000" not in result.out
    erased_line = "\x1b[2K"
    assert result.out.splitlines()[-1].endswith(f"{erased_line}6 replayed")
