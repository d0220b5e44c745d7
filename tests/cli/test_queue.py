"""`taskmq queue`."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import QueueDepth, history_of
from taskmq.model.history.rollups import MINUTE, minute_of
from taskmq_sql import open_job_store
from tests.cli.kit import Here, Started, bury, declare, fill, names_in, run_here, run_on_terminal
from tests.servers import eventually


def test_the_queues_of_an_app_are_listed_with_their_backlog(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks", "others")
    fill("images", ["a", "b"])
    fill("images.p.high", ["c"])

    result = taskmq("queue", "list", "--app", "shop:app", "-o", "json")

    ready = {row["queue"]: row["ready"] for row in result.data}
    assert result.code == 0
    assert ready["images"] == 2
    assert ready["images.p.high"] == 1
    assert {"images.p.low", "images.dlq", "ticks", "taskmq.parking", "taskmq.unroutable"} <= set(ready)
    assert "others" not in ready


def test_named_queues_are_listed_and_blanks_are_ignored(taskmq: Here) -> None:
    declare("images", "ticks", "others")

    result = taskmq("queue", "list", "-Q", "images, others", "-o", "jsonl")

    names = {row["queue"] for row in result.rows}
    assert {"images", "others"} <= names
    assert "ticks" not in names


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "list"),
        *(
            pytest.param(
                words,
                marks=pytest.mark.nightly(
                    "tests/cli/test_queue.py::test_a_broker_that_is_down_is_reported_after_two_seconds"
                ),
            )
            for words in (("queue", "show", "images"), ("workers",), ("top", "--count", "1"))
        ),
    ],
    ids=" ".join,
)
def test_a_broker_that_is_down_is_reported_after_two_seconds(
    shop: Path, taskmq: Here, command: tuple[str, ...]
) -> None:
    result = taskmq("--url", "amqp://guest:guest@127.0.0.1:1/", *command, "--app", "shop:app")

    assert result.code == 5
    assert "no connection to amqp://guest@127.0.0.1:1/%2F within 2.0 s" in result.err
    assert "is RabbitMQ started" in result.err


def test_a_command_without_an_app_requires_queue_names(taskmq: Here) -> None:
    result = taskmq("queue", "list")

    assert (result.code, result.out) == (2, "")
    assert "-Q a,b" in result.err


@pytest.mark.parametrize("queues", ["images.dlq", "taskmq.parking", "a,,b", ""])
def test_invalid_queue_names_are_wrong_usage(taskmq: Here, queues: str) -> None:
    assert taskmq("queue", "list", "-Q", queues).code == 2


def test_a_table_has_a_heading_and_one_line_per_queue_even_when_piped(home: Path) -> None:
    name = "q" * 150
    declare(name)

    result = run_here(home, "queue", "list", "-Q", name, env={"COLUMNS": "40"})

    lines = result.out.splitlines()
    assert lines[0].split() == ["queue", "ready", "unsettled", "delayed", "consumers"]
    assert lines[2].split() == [name, "0", "0", "0", "0"]
    assert "\x1b" not in result.out
    assert result.err == "0 ready, 0 in workers, 0 delayed\n"


def test_a_table_on_a_terminal_wraps_long_cells_and_loses_nothing(home: Path) -> None:
    name = "q" * 150
    declare(name)

    result = run_on_terminal(home, "queue", "list", "-Q", name, columns=60)

    assert result.code == 0
    assert max(len(line) for line in result.out.splitlines()) <= 60
    # One name for each physical queue.
    assert result.out.count("q") >= 150 * 4


async def _sample(path: Path) -> None:
    """Store samples of a queue that grew by 240 jobs in two minutes, and no runs."""
    store = open_job_store(f"sqlite:///{path}", BrokerOptions(name="test"))
    now = minute_of(await store.now_ms())
    depths = [
        QueueDepth(queue="images", at=now - minutes * MINUTE, stored=stored, ready=0, in_hand=0)
        for minutes, stored in ((3, 10), (1, 250))
    ]
    await history_of(store).depths.add(depths)
    await store.aclose()


def test_rates_and_advice_are_listed_once_a_scheduler_has_sampled_them(home: Path, taskmq: Here) -> None:
    app = 'app = TaskMQ(store="sqlite:///jobs.db", queues=[WorkQueue("images")])\n'
    (home / "shop.py").write_text(f"from taskmq import TaskMQ, WorkQueue\n\n{app}")
    assert taskmq("--app", "shop:app", "store", "upgrade").code == 0
    declare("images")
    bury("images", [f"job-{number}" for number in range(250)])
    asyncio.run(_sample(home / "jobs.db"))

    listed = taskmq("--app", "shop:app", "queue", "list")
    watched = taskmq("--app", "shop:app", "top", "--every", "0.2s", "--count", "1", "-o", "json")

    heading, _, *rows = [line.split() for line in listed.out.splitlines()]
    row = dict(zip(heading, next(row for row in rows if row[0] == "images"), strict=False))
    assert heading[-3:] == ["in_per_s", "out_per_s", "empty_in"]
    assert (row["in_per_s"], row["out_per_s"]) == ("2.0", "0.0")
    assert "images grows by 120 jobs a minute\n" in listed.err
    (shown,) = [one for one in watched.data["queues"] if one["queue"] == "images"]
    assert (shown["in_per_s"], shown["out_per_s"], shown["empty_in"]) == (2.0, 0.0, None)


def test_purging_empties_all_classes_and_keeps_the_dead_letters(taskmq: Here) -> None:
    declare("images")
    for queue in ("images", "images.p.high", "images.p.low", "images.dlq"):
        fill(queue, ["a", "b"])

    result = taskmq("queue", "purge", "images", "--yes")

    assert (result.code, result.out, result.err) == (0, "", "6 messages deleted\n")
    assert names_in("images") == names_in("images.p.high") == names_in("images.p.low") == []
    assert names_in("images.dlq") == ["a", "b"]


def test_purging_a_missing_queue_is_not_found(taskmq: Here) -> None:
    result = taskmq("queue", "purge", "images", "--yes")

    assert (result.code, result.out) == (3, "")
    assert "'images" in result.err


@pytest.mark.parametrize("noun", ["queue", "dlq"])
def test_purging_without_a_terminal_requires_yes(home: Path, noun: str) -> None:
    declare("images")
    fill("images", ["a"])
    fill("images.dlq", ["a"])

    result = run_here(home, noun, "purge", "images", text="y\n")

    assert (result.code, result.out) == (1, "")
    assert "--yes" in result.err
    assert names_in("images") == names_in("images.dlq") == ["a"]


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)])
def test_purging_asks_on_a_terminal(home: Path, answer: str, is_done: bool) -> None:
    declare("images")
    fill("images", ["a"])

    result = run_on_terminal(home, "queue", "purge", "images", types=answer)

    assert "[y/N]" in result.out
    assert result.code == (0 if is_done else 1)
    assert names_in("images") == ([] if is_done else ["a"])


def test_a_paused_queue_shows_time_and_note_until_it_is_resumed(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")

    paused = taskmq("--app", "shop:app", "queue", "pause", "images", "--note", "the printer is broken", "--by", "ann")
    table = taskmq("--app", "shop:app", "queue", "list").out
    rows = {row["queue"]: row["paused"] for row in taskmq("--app", "shop:app", "queue", "list", "-o", "json").data}
    resumed = taskmq("--app", "shop:app", "queue", "resume", "images", "ticks")

    assert paused.code == resumed.code == 0
    assert paused.err.startswith("queue images is paused since 20")
    assert paused.err.endswith("Z by ann (the printer is broken)\n")
    assert table.count("(the printer is broken)") == 5
    assert "paused" in table.splitlines()[0]
    assert rows["images"]["note"] == rows["images.p.low"]["note"] == "the printer is broken"
    assert rows["ticks"] is rows["images.dlq"] is None
    assert resumed.err == "queue images resumed\nqueue ticks was not paused\n"
    assert "paused" not in taskmq("--app", "shop:app", "queue", "list").out


def test_a_second_pause_changes_the_note_and_not_the_instant(shop: Path, taskmq: Here) -> None:
    first = taskmq("queue", "pause", "images", "--app", "shop:app").err
    second = taskmq("queue", "pause", "images", "--app", "shop:app", "--note", "still").err

    assert second == first.replace("\n", " (still)\n")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_unknown_queue_cannot_be_paused(shop: Path, taskmq: Here, verb: str) -> None:
    declare("images")

    result = taskmq("--app", "shop:app", "queue", verb, "imags")

    assert (result.code, result.out) == (3, "")
    assert "'imags' does not exist at the broker: did you mean 'images'?" in result.err
    assert taskmq("queue", verb).code == 2


def test_workers_stop_and_start_with_a_pause_even_over_a_restart(shop: Path, taskmq: Here) -> None:
    with Started(shop, "worker", "shop:app") as worker:
        worker.says("waiting for jobs")
        assert taskmq("queue", "pause", "images", "--app", "shop:app").code == 0
        worker.says("queue 'images' paused: its jobs are not started")
        assert taskmq("send", "shop.double", "--args", "[1]", "--app", "shop:app").code == 0
    with Started(shop, "worker", "shop:app") as worker:
        worker.says("queue 'images' paused: its jobs are not started")
        assert len(names_in("images")) == 1
        assert taskmq("queue", "resume", "images", "--app", "shop:app").code == 0
        eventually(lambda: names_in("images") == [], "the job has run")


def test_a_queue_is_shown_with_its_contents_and_its_users(shop: Path, taskmq: Here) -> None:
    with Started(shop, "worker", "shop:app", "-c", "1", "--name", "w1") as worker:
        worker.says("waiting for jobs")
        for number in ("3600", "3600"):
            assert taskmq("send", "shop.sleep", "--args", f"[{number}]", "--app", "shop:app").code == 0
        assert taskmq("send", "shop.double", "--args", "[1]", "--delay", "1h", "--app", "shop:app").code == 0
        bury("images.dlq", ["dead"])

        def show_queue() -> dict[str, Any]:
            result = taskmq("queue", "show", "images", "--app", "shop:app", "--within", "0.3s", "-o", "json")
            assert result.code == 0
            shown = cast("dict[str, Any]", result.data)
            return shown if (shown["workers"], shown["in_hand"]) == (["w1"], 2) else {}

        found = eventually(show_queue, "the worker has two jobs and answers")
        table = taskmq("queue", "show", "images", "--app", "shop:app", "--within", "10ms").out
        worker.process.kill()

    counts = {name: found[name] for name in ("ready", "in_hand", "delayed", "dead", "consumers", "paused")}
    assert counts == {"ready": 0, "in_hand": 2, "delayed": 1, "dead": 1, "consumers": 1, "paused": None}
    assert found["tasks"] == ["shop.double", "shop.fail", "shop.sleep"]
    parts = ["images.p.high", "images", "images.p.low", "images.jobs", "images.parcels"]
    assert [part["queue"] for part in found["parts"]] == parts
    assert (found["kind"], found["priorities"], found["ordered"], found["lanes"]) == ("quorum", "classes", None, None)
    assert "tasks           shop.double, shop.fail, shop.sleep" in table
    assert "paused          no" in table


def test_an_unknown_queue_cannot_be_shown(shop: Path, taskmq: Here) -> None:
    result = taskmq("queue", "show", "imags", "--app", "shop:app")

    assert (result.code, result.out) == (3, "")
    assert "did you mean 'images'?" in result.err
