"""`taskmq bulk`, on an app without a scheduler to carry out bulks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.kit import Here, Result

Shop = Callable[..., Result]

_APP = """\
from taskmq import TaskMQ

app = TaskMQ("memory://bulk", store="sqlite:///jobs.db")


@app.task(name="report", queue="reports")
def report(month: str) -> str:
    return month
"""


@pytest.fixture
def shop(home: Path, taskmq: Here) -> Shop:
    (home / "shop.py").write_text(_APP)
    for name in ("jan", "feb"):
        assert taskmq("--app", "shop:app", "job", "submit", "report", "--args", '["x"]', "--job-id", name).code == 0

    def run(*tokens: str) -> Result:
        return taskmq("--app", "shop:app", "bulk", *tokens)

    return run


def test_a_bulk_is_started_listed_shown_and_aborted(shop: Shop) -> None:
    counted = shop("begin", "hold", "task:report", "--dry-run", "-o", "json")
    refused = shop("begin", "hold", "task:report")
    begun = shop("begin", "hold", "task:report", "--rate", "5", "--note", "inventory", "--yes", "-o", "json").data
    listed = shop("list", "-o", "json").data
    aborted = shop("abort", begun["bulk_id"], "-o", "json").data

    assert counted.data == {"matched": 2}
    assert refused.code == 1
    assert (begun["state"], begun["matched"], begun["rate"], begun["note"]) == ("running", 2, 5.0, "inventory")
    assert [one["bulk_id"] for one in listed] == [begun["bulk_id"]]
    assert (aborted["state"], aborted["done"]) == ("aborted", 0)
    assert shop("show", begun["bulk_id"], "-o", "json").data == aborted


def test_a_bulk_needs_a_filter_and_a_missing_one_is_not_found(shop: Shop) -> None:
    assert (shop("begin", "hold").code, shop("begin", "change", "task:report", "--yes").code) == (2, 2)
    assert [shop(verb, "none").code for verb in ("show", "abort")] == [3, 3]


def test_an_awaited_bulk_runs_without_a_server(shop: Shop, taskmq: Here) -> None:
    held = shop("begin", "hold", "task:report", "--wait", "--yes", "-o", "json")
    listed = taskmq("--app", "shop:app", "job", "list", "status:held", "--count", "-o", "json")
    released, again = (shop("begin", "release", "task:report", "--wait", "--yes") for _ in range(2))
    entries = taskmq("--app", "shop:app", "audit", "list", "--action", "bulk.", "-o", "json")

    assert (held.code, held.data["state"], held.data["done"], held.data["refused"]) == (0, "done", 2, 0)
    assert listed.data["count"] == 2
    assert (released.code, again.code) == (0, 6)
    assert "job jan: job jan is not held" in again.err
    assert sorted(entry["action"] for entry in entries.data) == ["bulk.begin"] * 3 + ["bulk.end"] * 3


def test_an_awaited_bulk_leaves_other_open_bulks_to_servers(shop: Shop) -> None:
    other = shop("begin", "cancel", "task:report", "--yes", "-o", "json").data

    held = shop("begin", "hold", "task:report", "--wait", "--yes", "-o", "json")

    assert (held.code, held.data["state"], held.data["done"]) == (0, "done", 2)
    assert shop("show", other["bulk_id"], "-o", "json").data == other


def test_failed_jobs_are_retried_once_by_however_many_commands(shop: Shop, taskmq: Here) -> None:
    shop("begin", "cancel", "task:report", "--wait", "--yes")
    command = ("begin", "retry", "status:cancelled", "--mode", "new", "--wait", "--yes", "-o", "json")

    first, second, third = shop(*command), shop(*command), shop(*command, "--again")

    counted = [(one.code, one.data["matched"], one.data["done"]) for one in (first, second, third)]
    assert counted == [(0, 2, 2), (0, 0, 0), (0, 2, 2)]
    ids = {row["id"] for row in taskmq("--app", "shop:app", "job", "list", "status:queued", "-o", "json").data}
    shown = shop("show", first.data["bulk_id"]).err
    told = [line.split()[-1] for line in shown.splitlines() if "retried as" in line]
    assert len(told) == 2
    assert set(told) < ids
    assert len(ids) == 4
