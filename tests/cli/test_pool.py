"""`taskmq pool`, and pools in `taskmq job explain`."""

from pathlib import Path

import pytest

from tests.cli.kit import Here, Result

_APP = """\
from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")


@app.task(name="report", queue="reports")
def report(month: str) -> str:
    return month
"""


class Shop:
    """The command line of an app, with parsed output."""

    def __init__(self, taskmq: Here) -> None:
        self._taskmq = taskmq

    def __call__(self, *words: str) -> Result:
        return self._taskmq(*words, "--app", "shop:app", "-o", "json")


@pytest.fixture
def shop(home: Path, taskmq: Here) -> Shop:
    (home / "shop.py").write_text(_APP)
    return Shop(taskmq)


def test_pools_are_configured_step_by_step_listed_and_removed(shop: Shop) -> None:
    assert shop("pool", "set", "acme", "--weight", "5", "--min", "2").code == 0
    changed = shop("pool", "set", "acme", "--max", "8", "--min", "0")
    assert shop("pool", "set", "acme-ml", "--parent", "acme").code == 0

    assert changed.data == {"pool": "acme", "parent": None, "weight": 5.0, "min": {}, "max": {"slots": 8.0}}
    assert [row["pool"] for row in shop("pool", "list").data] == ["acme", "acme-ml"]
    # A child of it exists.
    assert shop("pool", "remove", "acme", "--yes").code == 2
    assert shop("pool", "remove", "acme-ml", "--yes").code == 0
    assert [row["pool"] for row in shop("pool", "list").data] == ["acme"]
    assert "did you mean 'acme'" in shop("pool", "remove", "acmee", "--yes").err


def test_a_pool_limits_the_node_resources_of_its_jobs(shop: Shop, taskmq: Here) -> None:
    shop("pool", "set", "lab", "--min", "slots=2,gpu=1", "--max", "gpu=2,memory=4G")
    changed = shop("pool", "set", "lab", "--min", "0", "--max", "gpu=0")

    table = taskmq("pool", "set", "lab", "--max", "gpu=2,memory=4G", "--app", "shop:app", "-o", "table").out

    assert (changed.data["min"], changed.data["max"]) == ({}, {"gpu": 0.0})
    assert "gpu=2, memory=4G" in table
    assert "--max" in shop("pool", "set", "lab", "--max", "lots").err


def test_a_queue_follows_a_policy_until_that_is_removed(shop: Shop) -> None:
    assert shop("pool", "policy", "reports", "weighted").code == 0
    assert "queue reports: weighted" in shop("pool", "list").err

    assert shop("pool", "policy", "reports", "none").code == 0
    assert "queue reports" not in shop("pool", "list").err
    assert shop("pool", "policy", "reports", "fare").code == 2


def test_explain_names_the_pool_of_a_job_and_its_cap(shop: Shop, taskmq: Here) -> None:
    shop("pool", "policy", "reports", "weighted")
    shop("pool", "set", "acme", "--weight", "3", "--max", "2")
    submitted = [
        shop("job", "submit", "report", "--args", '["2027-01"]', "--tenant", tenant) for tenant in ("acme", "zeta")
    ]

    explained = shop("job", "explain", submitted[0].data["id"])

    assert "1 other tenant has jobs in that queue" in explained.data["reasons"]
    lines = taskmq("job", "explain", submitted[0].data["id"], "--app", "shop:app").out.splitlines()
    answer, *others = explained.data["reasons"]
    assert lines[2:4] == [f"answer        {answer}", "reasons:"]
    assert [line.removeprefix("  ") for line in lines[4 : lines.index("alternatives:")]] == others
    assert "gets 75.0% of the queue" in explained.out
    assert "pool 'acme' has 0 of at most 2 jobs in flight in that queue" in explained.out


def test_tenants_with_waiting_jobs_are_listed_with_the_reason_of_the_oldest(shop: Shop, taskmq: Here) -> None:
    assert shop("pool", "waiting").data == []
    submitted = [
        shop("job", "submit", "report", "--args", '["2027-01"]', "--tenant", tenant).data
        for tenant in ("zeta", "acme", "acme")
    ]
    shop("queue", "pause", "reports", "--note", "printer")

    zeta, acme = shop("pool", "waiting").data

    assert [(one["tenant"], one["jobs"], one["queue"]) for one in (zeta, acme)] == [
        ("zeta", 1, "reports"),
        ("acme", 2, "reports"),
    ]
    assert (zeta["first"], acme["first"]) == (submitted[0]["id"], submitted[1]["id"])
    assert any("printer" in reason for reason in acme["reasons"])
    assert acme["alternatives"] == [
        "start `taskmq scheduler`",
        "resume queue 'reports' (`taskmq queue resume reports`)",
    ]
    table = taskmq("pool", "waiting", "--limit", "1", "--app", "shop:app", "-o", "table").out
    assert ("zeta" in table, "acme" in table, "printer" in table) == (True, False, True)
    assert "taskmq queue resume reports" in table


def test_a_pool_is_shown_with_its_parents_and_children(shop: Shop) -> None:
    for words in (("acme",), ("ml", "--parent", "acme"), ("gpu", "--parent", "ml")):
        assert shop("pool", "set", *words).code == 0

    shown = shop("pool", "show", "ml").data
    absent = shop("pool", "show", "mll")

    assert (shown["pool"], shown["above"], shown["parts"]) == ("ml", ["acme"], ["gpu"])
    assert (absent.code, "did you mean 'ml'" in absent.err) == (3, True)


def test_quotas_are_set_listed_and_removed_and_refuse_excess_jobs(shop: Shop) -> None:
    quota = shop("quota", "set", "acme", "--a-day", "1", "--rate", "5", "--burst", "10").data
    assert shop("quota", "set", "acme", "--user", "*", "--bytes", "1000").code == 0
    submit = ("job", "submit", "report", "--kwargs", '{"month": "May"}', "--tenant", "acme")
    assert shop(*submit).code == 0

    refused = shop(*submit)
    listed = shop("quota", "list").data

    assert (quota["tenant"], quota["user"], quota["a_day"], quota["rate"]) == ("acme", None, 1, 5.0)
    assert (refused.code, "has reached its quota of 1 job per day" in refused.err) == (1, True)
    assert [(row["user"], row["jobs_today"]) for row in listed] == [(None, 1), ("*", 0)]
    assert shop("quota", "remove", "acme", "--user", "*", "--yes").code == 0
    assert shop("quota", "remove", "acme", "--yes").code == 0
    assert shop("quota", "remove", "acme", "--yes").code == 3
