"""`taskmq top`."""

import json
from pathlib import Path
from typing import Any

import pytest

from taskmq.cli.processes.top import Sample, draw
from tests.cli.kit import SHOP, Here, Started, declare, run_on_terminal
from tests.servers import eventually


def samples(said: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in said.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")
    ]


def test_top_shows_queues_workers_and_task_activity(home: Path, taskmq: Here) -> None:
    (home / "shop.py").write_text(SHOP)
    with Started(home, "worker", "shop:app", "--name", "w1", "--grace", "0s") as worker:
        worker.says("waiting for jobs")
        with Started(home, "--app", "shop:app", "-o", "jsonl", "top", "--every", "0.2s") as top:
            eventually(lambda: any(each["workers"] for each in samples(top.said)), "the worker is seen")
            assert taskmq("send", "shop.double", "--args", "[2]", "--app", "shop:app").code == 0
            eventually(lambda: any(each["tasks"] for each in samples(top.said)), "the task is seen")
            last = samples(top.said)[-1]

    assert [each["name"] for each in last["workers"]] == ["w1"]
    assert [(each["task"], each["succeeded"], each["failed"]) for each in last["tasks"]] == [("shop.double", 1, 0)]
    assert {"images", "images.dlq"} <= {each["queue"] for each in last["queues"]}


def test_top_and_the_list_of_queues_show_what_waits_in_the_store(home: Path, taskmq: Here) -> None:
    (home / "shop.py").write_text(SHOP.replace("TaskMQ(", 'TaskMQ(store="sqlite:///jobs.db", ', 1))
    assert taskmq("job", "submit", "shop.double", "--args", "[2]", "--app", "shop:app").code == 0

    top = taskmq("--app", "shop:app", "-o", "json", "top", "--every", "0.2s")
    listed = taskmq("queue", "list", "--app", "shop:app")

    assert {each["queue"]: each["stored"] for each in top.data["queues"]}["images"] == 1
    lines = [line.split() for line in listed.out.splitlines()]
    assert lines[0][:3] == ["queue", "stored", "ready"]
    assert ["images", "1", "0"] in [line[:3] for line in lines]
    assert listed.err.startswith("1 in the store, ")


def test_a_number_of_stored_jobs_that_is_not_exact_ends_with_a_plus(
    home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "shop.py").write_text(SHOP.replace("TaskMQ(", 'TaskMQ(store="sqlite:///jobs.db", ', 1))
    assert taskmq("job", "submit", "shop.double", "--args", "[2]", "--app", "shop:app").code == 0
    monkeypatch.setattr("taskmq.app_api.queues.MOST_WAITING", 1)

    listed = taskmq("--app", "shop:app", "queue", "list")
    shown = taskmq("--app", "shop:app", "queue", "show", "images", "--within", "0.2s")
    top = taskmq("--app", "shop:app", "top", "--every", "0.2s", "--count", "1")

    assert ["images", "1+", "0"] in [line.split()[:3] for line in listed.out.splitlines()]
    assert listed.err.startswith("1+ in the store, ")
    assert ["stored", "1+"] in [line.split() for line in shown.out.splitlines()]
    assert ["images", "1+", "0"] in [line.split()[:3] for line in top.out.splitlines()]


def test_top_ends_after_the_given_number_of_refreshes(home: Path, taskmq: Here) -> None:
    (home / "shop.py").write_text(SHOP)

    once = taskmq("--app", "shop:app", "-o", "json", "top", "--every", "0.2s")
    plain = taskmq("--app", "shop:app", "top", "--every", "0.2s", "--count", "2")

    assert once.data["workers"] == []
    assert plain.out.count(" 0 workers") == 2
    assert "per_second" in plain.out


def test_top_draws_a_screen_on_a_terminal(home: Path) -> None:
    (home / "shop.py").write_text(SHOP)
    declare("images")

    result = run_on_terminal(home, "--app", "shop:app", "top", "--every", "0.2s", "--count", "1", columns=120)

    assert result.code == 0
    assert "per second" in result.out
    assert "images" in result.out


def test_an_interval_that_is_too_short_is_wrong_usage(taskmq: Here) -> None:
    result = taskmq("top", "--every", "10ms")

    assert result.code == 2
    assert "at least 0.2s" in result.err


def test_the_screen_shows_names_without_controlling_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=120, record=True)
    row = {"queue": "[red]q", "ready": 3, "change": 1.5, "unsettled": 0, "delayed": None, "consumers": 1}
    console.print(draw(Sample(broker="here", at="now", delayed=7, missed=2, queues=[row], tasks=[], workers=[])))

    text = console.export_text()
    assert "now  here  7 delayed, 0 workers, 2 events missed" in text
    assert "[red]q" in text
