"""`taskmq definition` and `taskmq task`, and jobs submitted by such names."""

import asyncio
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Catalogued
from taskmq.tasks.registration import registrations_of
from tests.cli.kit import Here, Result

_APP = """\
from typing import Literal

from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")


@app.task(name="report", queue="reports")
def report(month: str, *, region: Literal["eu", "us"] = "eu") -> str:
    "Make the report."
    return month
"""


@pytest.fixture
def shop(home: Path, taskmq: Here) -> "Shop":
    (home / "shop.py").write_text(_APP)
    return Shop(taskmq)


class Shop:
    """The command line of an app, with parsed output."""

    def __init__(self, taskmq: Here) -> None:
        self._taskmq = taskmq

    def __call__(self, *words: str) -> Result:
        return self._taskmq(*words, "--app", "shop:app", "-o", "json")


@pytest.fixture
def without_code(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a machine without the code, at a store with its registrations."""
    (home / "shop.py").write_text(_APP)
    monkeypatch.syspath_prepend(str(home))
    import shop as code  # type: ignore[import-not-found]

    target: TaskMQ = code.app

    async def register() -> None:
        async with target:
            store = target.sessions.store()
            assert isinstance(store, Catalogued)
            await store.tasks.register(registrations_of(target.tasks), origin="broker", worker="w1")

    asyncio.run(register())
    monkeypatch.setenv("TASKMQ_STORE", "sqlite:///jobs.db")


def test_a_definition_is_created_shown_and_listed(shop: Shop) -> None:
    words = ("--kwargs", '{"region": "us"}', "--label", "team=ops", "--expires", "90s", "--by", "ann")
    put = shop("definition", "put", "monthly", "report", *words)
    again = shop("definition", "put", "monthly", "report", *words)

    assert (put.code, again.code) == (0, 0)
    assert (put.data["version"], again.data["version"], put.data["by"]) == (1, 1, "ann")
    shown = shop("definition", "show", "monthly").data
    assert shown == put.data
    assert (shown["task"], shown["kwargs"], shown["labels"], shown["expires_in"]) == (
        "report",
        {"region": "us"},
        {"team": "ops"},
        90.0,
    )
    (listed,) = shop("definition", "list").data
    assert (listed["name"], listed["task"]) == ("monthly", "report")
    assert shop("definition", "list", "x").data == []


def test_definitions_are_listed_page_by_page(shop: Shop) -> None:
    for name in ("a", "b", "c"):
        shop("definition", "put", name, "report")

    first = shop("definition", "list", "--limit", "2")

    assert [row["name"] for row in first.data] == ["a", "b"]
    assert "--after b" in first.err
    assert [row["name"] for row in shop("definition", "list", "--after", "b").data] == ["c"]


def test_versions_are_based_on_the_seen_one_and_survive_a_deletion(shop: Shop) -> None:
    shop("definition", "put", "monthly", "report", "--version", "0")
    shop("definition", "put", "monthly", "report", "--priority", "7", "--version", "1")

    late = shop("definition", "put", "monthly", "report", "--priority", "8", "--version", "1")
    asked = shop("definition", "delete", "monthly")
    late_deletion = shop("definition", "delete", "monthly", "--version", "1", "--yes")
    deleted = shop("definition", "delete", "monthly", "--version", "2", "--yes")

    assert (late.code, asked.code, late_deletion.code, deleted.code) == (6, 1, 6, 0)
    assert "has version 2" in late.err
    assert shop("definition", "show", "monthly").code == 3
    assert shop("definition", "show", "monthly", "--version", "1").data["priority"] is None
    assert [row["version"] for row in shop("definition", "versions", "monthly").data] == [2, 1]
    assert shop("definition", "versions", "weekly").code == 3
    assert shop("definition", "delete", "monthly", "--yes").code == 3


def test_a_job_is_submitted_by_the_name_of_a_definition(shop: Shop) -> None:
    shop("definition", "put", "monthly", "report", "--kwargs", '{"region": "us"}', "--tenant", "acme")

    made = shop("job", "submit", "monthly", "--args", '["2027-01"]', "--tenant", "acme")
    unfit = shop("job", "submit", "monthly", "--args", "[7]", "--tenant", "acme")
    foreign = shop("job", "submit", "monthly", "--args", '["2027-01"]')

    assert (made.data["task"], made.data["definition"], made.data["definition_version"]) == ("report", "monthly", 1)
    assert (unfit.code, foreign.code) == (2, 3)
    assert "month" in unfit.err
    assert shop("job", "list", "--count").data["count"] == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("put", "report", "report"), 2),
        (("put", "monthly", "raport"), 3),
        (("put", "x" * 500, "report"), 2),
        (("put", "monthly", "report", "--kwargs", "[]"), 2),
        (("put", "monthly", "report", "--args", "{"), 2),
        (("put", "monthly", "report", "--kwargs", '{"region": 1, "month": "jan"}'), 2),
        (("put", "monthly", "report", "--label", "x"), 2),
        (("show", "monthly"), 3),
    ],
)
def test_a_refused_definition_has_its_exit_code(shop: Shop, words: tuple[str, ...], code: int) -> None:
    assert shop("definition", *words).code == code
    assert shop("definition", "list").data == []


@pytest.mark.usefixtures("without_code")
def test_tasks_are_listed_and_shown_without_their_code(taskmq: Here) -> None:
    (row,) = taskmq("-o", "json", "task", "list").data
    shown = taskmq("-o", "json", "task", "show", "report").data
    for_people = taskmq("task", "show", "report")

    assert (row["name"], row["queue"], row["positional"], row["is_own"]) == ("report", "reports", ["month"], False)
    assert (shown["description"], shown["by"], shown["origin"]) == ("Make the report.", "w1", "broker")
    assert shown["arguments"]["properties"]["region"] == {"enum": ["eu", "us"]}
    assert "month [region]" in for_people.out
    assert '"enum": [' in for_people.out
    assert taskmq("task", "show", "raport").code == 3
    assert taskmq("-o", "json", "task", "list", "x").data == []


@pytest.mark.usefixtures("without_code")
def test_jobs_and_definitions_of_registered_tasks_need_none_of_their_code(taskmq: Here) -> None:
    made = taskmq("-o", "json", "job", "submit", "report", "--args", '["2027-01"]')
    unfit = taskmq("job", "submit", "report", "--args", '["2027-01"]', "--kwargs", '{"region": "fr"}')
    unknown = taskmq("job", "submit", "raport")
    put = taskmq("-o", "json", "definition", "put", "monthly", "report")

    assert (made.data["task"], made.data["queue"]) == ("report", "reports")
    assert (unfit.code, unknown.code, put.code) == (2, 3, 0)
    assert "region" in unfit.err
    assert taskmq("-o", "json", "job", "list", "--count").data["count"] == 1
