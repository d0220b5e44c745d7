"""`taskmq failures`, with an app and through a server."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import history_of
from taskmq.model.history.rollups import RunFailure
from taskmq_sql import open_job_store
from tests.cli.kit import Here, bury, declare, names_in, run_here

_SHOP = """
from taskmq import TaskMQ

app = TaskMQ("local://.taskmq", store="sqlite:///jobs.db", state="local://.taskmq")


@app.task(name="report", queue="images")
def report(number: int) -> None: ...
"""


@pytest.fixture
def broken(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two dead letters of one tenant, one of them of yesterday, and one of another."""
    (home / "shop.py").write_text(_SHOP)
    declare("images")
    assert run_here(home, "store", "upgrade", "--app", "shop:app").code == 0
    now = round(time.time() * 1000)
    headers: dict[str, str | int] = {
        "x-taskmq-reason": "error",
        "x-taskmq-error": "OSError: full",
        "x-taskmq-died": now - 60_000,
    }
    for name, tenant in (("a", "acme"), ("b", "globex")):
        bury("images.dlq", [name], tenant=tenant, headers={**headers, "x-taskmq-origin": "images"})
    bury("images.dlq", ["old"], tenant="acme", headers={**headers, "x-taskmq-died": now - 90_000_000})
    monkeypatch.setenv("TASKMQ_APP", "shop:app")
    return home


def _jobs(taskmq: Here, *tokens: str) -> list[str]:
    return [row["job_id"] for row in taskmq("failures", *tokens, "-o", "json").data]


@pytest.mark.usefixtures("broken")
def test_the_failures_of_last_night_are_one_list_with_the_command_to_rerun_them(taskmq: Here) -> None:
    listed = taskmq("failures", "-o", "json")

    assert {row["job_id"]: (row["lane"], row["tenant"], row["remedy"], row["letter"]) for row in listed.data} == {
        "a": ("broker", "acme", "replay", "images"),
        "b": ("broker", "globex", "replay", "images"),
    }
    assert "replay images" in taskmq("failures").out
    assert listed.data[0]["summary"] == "OSError: full"
    assert listed.err == ""


@pytest.mark.usefixtures("broken")
def test_failures_are_selected_by_tenant_time_lane_and_task(taskmq: Here) -> None:
    assert _jobs(taskmq, "--tenant", "acme") == ["a"]
    assert _jobs(taskmq, "--tenant", "acme", "--since", "30h") == ["a", "old"]
    assert _jobs(taskmq, "--since", "30h", "--until", "12h") == ["old"]
    assert _jobs(taskmq, "--lane", "store") == []
    assert _jobs(taskmq, "--task", "absent") == []
    assert taskmq("failures", "--lane", "nowhere").code == 2


@pytest.mark.usefixtures("broken")
def test_a_truncated_list_says_that_there_are_more(taskmq: Here) -> None:
    cut = taskmq("failures", "--limit", "1", "-o", "json")

    assert (len(cut.data), "there are more" in cut.err) == (1, True)


@pytest.mark.usefixtures("broken")
def test_one_job_is_shown_by_its_letter_whatever_its_time(taskmq: Here) -> None:
    shown = taskmq("failures", "old", "-o", "json")
    absent = taskmq("failures", "absent")

    assert (shown.code, shown.data["tenant"], shown.data["letter"]) == (0, "acme", "images")
    assert absent.code == 3
    assert "taskmq job show" in absent.err


def test_without_a_store_the_missing_part_is_named_and_the_rest_is_listed(
    home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = 'from taskmq import TaskMQ, WorkQueue\n\napp = TaskMQ("local://.taskmq", queues=[WorkQueue("images")])\n'
    (home / "plain.py").write_text(app)
    declare("images")
    bury("images.dlq", ["a"], headers={"x-taskmq-died": round(time.time() * 1000)})
    monkeypatch.setenv("TASKMQ_APP", "plain:app")

    listed = taskmq("failures", "-o", "json")

    assert [row["job_id"] for row in listed.data] == ["a"]
    assert listed.err.splitlines()[0].startswith("jobs may be missing: ")
    assert names_in("images.dlq") == ["a"]


@pytest.mark.usefixtures("broken")
def test_every_json_row_has_the_parts_of_the_error_too(taskmq: Here) -> None:
    (row,) = [json.loads(line) for line in taskmq("failures", "--tenant", "acme", "-o", "jsonl").out.splitlines()]

    assert (row["error"], row["message"], row["attempt"], row["event"]) == ("OSError", "full", 3, "dead")


async def _report_failure(path: Path) -> None:
    store = open_job_store(f"sqlite:///{path}", BrokerOptions(name="test"))
    failed = RunFailure(
        at=await store.now_ms(), job="a", event="dead", task="report", queue="images", error="OSError", message="full"
    )
    await history_of(store).rollups.add([], [failed])
    await store.aclose()


def test_a_group_is_resolved_muted_and_reopened_by_its_id(broken: Path, taskmq: Here) -> None:
    asyncio.run(_report_failure(broken / "jobs.db"))
    listed = taskmq("failure-group", "list", "-o", "json")
    (group,) = listed.data

    assert (listed.code, group["error"], group["failures"], group["state"]) == (1, "OSError", 1, "open")
    for words, state in (
        (("resolve", "--why", "more disk"), "resolved"),
        (("mute", "--for", "7d"), "muted"),
        (("reopen",), "open"),
    ):
        assert taskmq("failure-group", words[0], group["id"], *words[1:], "--by", "ann").code == 0
        assert [one["state"] for one in taskmq("failure-group", "list", "-o", "json").data] == [state]
        (entry,) = taskmq("audit", "list", "--action", f"failures.{words[0]}", "-o", "json").data
        assert (entry["user"], entry["subject"]) == ("ann", group["id"])
    assert taskmq("failure-group", "list", "--state", "muted").code == 1
    absent = taskmq("failure-group", "resolve", "absent")
    assert (absent.code, "taskmq failure-group list" in absent.err) == (3, True)
