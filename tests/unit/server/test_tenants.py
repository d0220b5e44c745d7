"""Schedules and workflows of tenants: each sees its own, even with equal names."""

import asyncio
from typing import Any

import pytest

from taskmq import chain
from taskmq.contracts.jobs import StoredSchedule
from taskmq.workflow.runs.service import RunService
from tests.unit.server.kit import Site

_BODY: dict[str, Any] = {"task": "data_processing", "kwargs": {"key": "mine"}, "cron": "0 3 * * *"}


def _rows(site: Site) -> list[StoredSchedule]:
    async def look() -> list[StoredSchedule]:
        async with site.app:
            return await site.app.sessions.store().schedules.list(site.app.name, limit=99)

    return asyncio.run(look())


def test_a_schedule_of_a_tenant_is_created_shown_changed_run_and_deleted(site: Site) -> None:
    made = site("PUT", "/schedules/mine", _BODY)
    changed = site("PUT", "/schedules/mine", {**_BODY, "cron": None, "every": "15m", "overlap": "skip"})
    listed = site("GET", "/schedules").json()["items"]
    run = site("POST", "/schedules/mine/run")

    assert (made.status_code, changed.status_code, run.status_code) == (201, 200, 201)
    assert made.json()["rule"] == "at 03:00 every day, UTC"
    assert [(one["name"], one["tenant"], one["is_dynamic"]) for one in listed] == [("mine", "acme", True)]
    job = site("GET", f"/jobs/{run.json()['job_id']}?expand=payload").json()
    assert (job["tenant"], job["payload"]) == ("acme", {"key": "mine"})
    assert site("GET", "/schedules/mine").json()["history"][0]["kind"] == "run"
    assert [row.name for row in _rows(site)] == ["@acme:mine"]
    assert site("DELETE", "/schedules/mine").json() == {"status": "removed", "name": "mine"}
    assert site("GET", "/schedules/mine").json()["code"] == "schedule_not_found"
    actions = [entry["action"] for entry in site("GET", "/audit?action=schedule.").json()["items"]]
    assert actions == ["schedule.remove", "schedule.run", "schedule.put", "schedule.put"]


def test_a_partial_change_of_a_schedule_keeps_the_rest(site: Site) -> None:
    policy = {"catchup": "all", "overlap": "buffer_all", "max_concurrency": 3, "jitter": "90s"}
    site("PUT", "/schedules/mine", {**_BODY, "tz": "Europe/Berlin", **policy})
    site("POST", "/schedules/mine/run")
    before = site("GET", "/schedules/mine").json()

    changed = site("PATCH", "/schedules/mine", {"cron": "45 2 * * *"})

    assert changed.status_code == 200, changed.text
    after = changed.json()
    assert (after["rule"], after["cron"]) == ("at 02:45 every day, Europe/Berlin time", "45 2 * * *")
    differs = {"rule", "cron", "next"}
    assert {**after, **{key: before[key] for key in differs}} == before
    assert {key: after[key] for key in policy} == {**policy, "jitter": 90.0}
    assert (after["task"], after["args"], after["kwargs"]) == ("data_processing", [], {"key": "mine"})
    assert site("GET", "/schedules").json()["items"][0]["catchup"] == "all"

    other = site("PATCH", "/schedules/mine", {"every": 60, "overlap": "allow", "kwargs": {"key": "other"}}).json()
    assert (other["every"], other["cron"], other["overlap"], other["max_concurrency"]) == (60.0, None, "allow", 1)
    assert other["kwargs"] == {"key": "other"}
    replaced = site("PUT", "/schedules/mine", _BODY).json()
    assert (replaced["catchup"], replaced["jitter"]) == ("once", 0.0)


def test_the_audit_records_the_new_schedule_without_its_arguments(site: Site) -> None:
    site("PUT", "/schedules/mine", {**_BODY, "catchup": "all"})
    site("PATCH", "/schedules/mine", {"overlap": "skip", "kwargs": {"key": "secret"}})

    entries = site("GET", "/audit?action=schedule.").json()["items"]

    change, put = (entry["after"] for entry in entries)
    assert change == {"overlap": "skip", "arguments": "changed"}
    assert (put["rule"], put["catchup"], put["overlap"]) == ("at 03:00 every day, UTC", "all", "allow")
    assert "secret" not in str(entries)
    assert "mine" not in str(put)


def test_an_invalid_change_leaves_the_schedule_as_it_was(site: Site) -> None:
    site("PUT", "/schedules/mine", _BODY)
    before = site("GET", "/schedules/mine").json()

    assert site("PATCH", "/schedules/none", {"every": 60}).json()["code"] == "schedule_not_found"
    assert site("PATCH", "/schedules/mine", {"every": 60}, by="other-admin").status_code == 404
    assert site("PATCH", "/schedules/mine", {"task": "raport"}).status_code in {404, 422}
    for body in ({"cron": "0 1 * * *", "every": 60}, {"kwargs": {"colour": "red"}}, {"max_concurrency": 2}):
        assert site("PATCH", "/schedules/mine", body).status_code in {400, 422}, body
    code = site("PATCH", "/schedules/nightly", {"every": 60}, by="all-admin")
    assert "is defined in the code: change it there" in code.text

    assert site("GET", "/schedules/mine").json() == before


def test_arguments_of_schedules_require_permission_to_read_jobs(site: Site) -> None:
    site("PUT", "/schedules/mine", _BODY)

    seen, listed = site("GET", "/schedules/mine", by="planner"), site("GET", "/schedules", by="planner")

    assert (seen.json()["args"], seen.json()["kwargs"], seen.json()["task"]) == (None, None, "data_processing")
    assert [one["kwargs"] for one in listed.json()["items"]] == [None]
    assert site("GET", "/schedules/mine", by="acme-viewer").json()["kwargs"] == {"key": "mine"}


def test_schedules_are_listed_by_name_page_by_page(site: Site) -> None:
    for caller, name in (("acme-admin", "b"), ("acme-admin", "a.b"), ("acme-admin", "a.a"), ("other-admin", "a.c")):
        assert site("PUT", f"/schedules/{name}", _BODY, by=caller).status_code == 201
    for name in ("a.z", "zz"):
        assert site("PUT", f"/schedules/{name}", _BODY, by="all-admin").status_code == 201

    def pages(query: str, by: str = "acme-admin") -> list[list[str]]:
        found, cursor = [], ""
        while cursor is not None:
            page = site("GET", f"/schedules?{query}&cursor={cursor}", by=by).json()
            found.append([one["name"] for one in page["items"]])
            cursor = page["next"]
        return found

    assert pages("limit=2") == [["a.a", "a.b"], ["b"]]
    assert pages("prefix=a.") == [["a.a", "a.b"]]
    assert pages("prefix=a.&limit=1") == [["a.a"], ["a.b"]]
    assert pages("prefix=@acme:") == [[]]
    everybody = [["@acme:a.a", "@acme:a.b", "@acme:b"], ["@other:a.c", "a.z", "nightly"], ["zz"]]
    assert pages("limit=3", by="all-viewer") == everybody
    assert pages("prefix=@acme:a", by="all-viewer") == [["@acme:a.a", "@acme:a.b"]]
    assert pages("tenant=&limit=2", by="all-viewer") == [["a.z", "nightly"], ["zz"]]
    assert pages("prefix=%0A", by="all-viewer") == [[]]


def test_schedules_with_equal_names_belong_to_their_tenants(site: Site) -> None:
    for caller, key in (("acme-admin", "mine"), ("other-admin", "theirs"), ("all-admin", "nobody's")):
        assert site("PUT", "/schedules/s", {**_BODY, "kwargs": {"key": key}}, by=caller).status_code == 201

    site("POST", "/schedules/s/pause", {"note": "ours"})
    assert site("GET", "/schedules/s", by="other-admin").json()["paused"] is None
    everybody = site("GET", "/schedules", by="all-viewer").json()["items"]
    assert [one["name"] for one in everybody] == ["@acme:s", "@other:s", "nightly", "s"]
    nobodys = site("GET", "/schedules?tenant=", by="all-viewer").json()["items"]
    assert [one["name"] for one in nobodys] == ["nightly", "s"]
    assert site("GET", "/schedules/@acme:s", by="all-viewer").json()["note"] == "ours"
    assert site("GET", "/schedules/s?tenant=acme", by="all-viewer").json()["note"] == "ours"
    for name in ("@acme:s", "@other:s", "@other:s%0A", "nightly"):
        assert site("GET", f"/schedules/{name}", by="other-admin").status_code == 404
        assert site("POST", f"/schedules/{name}/run", by="other-admin").status_code == 404
        assert site("DELETE", f"/schedules/{name}", by="other-admin").status_code == 404
    run = site("POST", "/schedules/s/run", by="other-admin").json()["job_id"]
    assert site("GET", f"/jobs/{run}").status_code == 404
    assert site("GET", f"/jobs/{run}?expand=payload", by="other-admin").json()["payload"] == {"key": "theirs"}
    assert site("GET", "/schedules/@acme:s?tenant=", by="all-viewer").status_code == 404


def test_a_schedule_starts_only_permitted_tasks_and_definitions_of_its_tenant(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing", "kwargs": {"key": "defined"}})
    made = site("PUT", "/schedules/d", {"task": "monthly", "every": 60})

    assert made.json()["starts"] == "monthly version 1 (data_processing)"
    run = site("POST", "/schedules/d/run").json()["job_id"]
    assert site("GET", f"/jobs/{run}?expand=payload").json()["payload"] == {"key": "defined"}
    foreign = site("PUT", "/schedules/d", {"task": "monthly", "every": 60}, by="other-admin")
    assert foreign.json()["code"] == "unknown_task"
    assert site("PUT", "/schedules/p", {"task": "report", "every": 60}, by="picky").status_code == 403
    assert site("POST", "/schedules/d/run", by="picky").status_code == 403
    body = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T00:01:00Z"}
    assert site("POST", "/schedules/d/backfill", body, by="picky").status_code == 403
    assert site("POST", "/schedules/d/pause", by="picky").status_code == 403
    assert site("POST", "/schedules/d/pause").status_code == 200
    assert site("POST", "/schedules/d/resume", by="picky").status_code == 403
    assert site("GET", "/schedules/d").json()["paused"] is not None
    assert site("POST", "/schedules/d/resume").status_code == 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cron": None}, "invalid_field"),
        ({"every": "5m"}, "invalid_field"),
        ({"cron": "0 25 * * *"}, "invalid_option"),
        ({"tz": "Nowhere/Here"}, "invalid_option"),
        ({"cron": None, "every": -1}, "invalid_option"),
        ({"task": "absent"}, "unknown_task"),
        ({"kwargs": {"kay": 1}}, "invalid_arguments"),
        ({"max_concurrency": 2}, "invalid_option"),
        ({"overlap": "sometimes"}, "invalid_field"),
        ({"job_tpye": "x"}, "invalid_field"),
    ],
)
def test_an_invalid_schedule_is_refused_and_not_stored(site: Site, change: dict[str, Any], code: str) -> None:
    assert site("PUT", "/schedules/s", {**_BODY, **change}).json()["code"] == code
    assert site("GET", "/schedules").json()["items"] == []


def test_schedules_in_code_cannot_be_replaced_or_deleted(site: Site) -> None:
    assert site("PUT", "/schedules/nightly", _BODY, by="all-admin").json()["code"] == "invalid_option"
    assert site("DELETE", "/schedules/nightly", by="all-admin").json()["code"] == "invalid_option"
    assert site("PUT", "/schedules/nightly", _BODY).status_code == 201


def test_a_run_belongs_to_its_tenant_and_its_ids_are_free_in_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> None:
        async with site.app:
            service = RunService(site.app.sessions)
            for tenant, key in (("acme", "a"), ("other", "b"), (None, "c")):
                plan = site.app.tasks["data_processing"].s(key).plan()
                await service.start(plan, run_id="w1", tenant=tenant, name="w")
                found = await site.app.runs.get("w1", tenant=tenant).astate()
                assert found.state == "running"

    # No scheduler runs.
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    asyncio.run(start())

    mine, theirs = site("GET", "/runs/w1").json(), site("GET", "/runs/w1", by="other-admin").json()
    assert (mine["workflow"], mine["tenant"], theirs["tenant"]) == ("w", "acme", "other")
    assert site("GET", "/runs/@other:w1").status_code == 404
    assert site("POST", "/runs/w1/cancel").status_code == 200
    assert site("POST", "/runs/w1/close").json()["code"] == "run_closed"
    assert site("GET", "/runs/w1", by="all-viewer").json()["tenant"] == ""
    assert site("GET", "/runs/@acme:w1", by="all-viewer").json()["run_id"] == mine["run_id"]
    assert site("GET", "/runs/@acme:w1?tenant=", by="all-viewer").status_code == 404
    assert [entry["subject"] for entry in site("GET", "/audit?action=run.cancel").json()["items"]] == [mine["run_id"]]
    assert site("GET", "/audit?action=run.", by="other-admin").json()["items"] == []


def test_changing_a_run_requires_permission_for_all_its_tasks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> None:
        async with site.app:
            service, tasks = RunService(site.app.sessions), site.app.tasks
            mixed = chain(tasks["billing.charge"].si(1), tasks["data_processing"].si("a"))
            await service.start(tasks["billing.charge"].s(1).plan(), run_id="own", tenant="acme", name="w")
            await service.start(mixed.plan(), run_id="mixed", tenant="acme", name="w")

    # No scheduler runs.
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    asyncio.run(start())
    calls = ("cancel", "redrive", "close")

    assert [site("POST", f"/runs/mixed/{call}", by="picky").json()["code"] for call in calls] == ["not_allowed"] * 3
    assert site("POST", "/runs/own/cancel", by="picky").status_code == 200
    assert site("POST", "/runs/mixed/cancel").status_code == 200
