"""Queues, dead letters, schedules, tasks and definitions over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from taskmq.app_api.views import rendered
from taskmq.contracts.broker import Broker, Outgoing
from taskmq.model.topology import WorkQueue
from taskmq.operations.tenant_schedules import TenantSchedules
from taskmq.schedules.triggers import Every, every
from tests.unit.server.kit import Site


def _at_broker(site: Site, use: Callable[[Broker], Awaitable[None]]) -> None:
    """Do something with the site's broker, which is in this process."""

    async def run() -> None:
        async with site.app:
            await use(site.app.sessions.current().broker)

    asyncio.run(run())


@pytest.fixture
def filled(site: Site) -> Site:
    """A site with two messages in queue `work`, and three dead letters of two failures."""

    async def fill(broker: Broker) -> None:
        await broker.declare([WorkQueue("work"), WorkQueue("billing")])
        for number in range(2):
            await broker.publish(_message("work", f"m{number}"), timeout=10)
        for number, error in enumerate(("ValueError: no", "ValueError: no", "OSError: full")):
            await broker.publish(_message("work.dlq", f"d{number}", error), timeout=10)

    _at_broker(site, fill)
    return site


def _message(queue: str, name: str, error: str = "", *, origin: str = "work") -> Outgoing:
    body = f'{{"id": "{name}", "task": "data_processing", "kwargs": {{"key": "secret"}}, "attempt": 3}}'.encode()
    headers = {"x-taskmq-reason": "error", "x-taskmq-error": error, "x-taskmq-origin": origin} if error else {}
    return Outgoing(
        queue=queue, body=body, content_type="application/json", job_id=name, task="data_processing", headers=headers
    )


def test_queues_are_listed_and_shown(filled: Site) -> None:
    listed = filled("GET", "/queues?within=0.01", by="all-viewer").json()
    shown = filled("GET", "/queues/work?within=0.01", by="all-viewer").json()

    assert {one["queue"]: one["ready"] for one in listed["items"]}["work"] == 2
    assert (shown["ready"], shown["dead"], shown["tasks"]) == (2, 3, ["data_processing", "report"])
    assert filled("GET", "/queues/nowhere?within=0.01", by="all-viewer").json()["code"] == "queue_not_found"


def test_a_queue_is_one_row_with_its_parts_and_its_letters_want_no_worker(filled: Site) -> None:
    filled("POST", "/queues/work/pause", {}, by="all-operator")

    listed = filled("GET", "/queues?within=0.01", by="all-viewer").json()

    rows = {one["queue"]: one for one in listed["queues"]}
    assert {"work", "billing"} <= rows.keys()
    assert not [name for name in rows if name.endswith((".dlq", ".p.high", ".p.low", ".jobs"))]
    assert (rows["work"]["ready"], rows["work"]["dead"], rows["work"]["is_paused"]) == (2, 3, True)
    assert {"work", "work.dlq"} <= {*rows["work"]["parts"]}
    assert sorted(part for one in rows.values() for part in one["parts"]) == sorted(
        one["queue"] for one in listed["items"]
    )


def test_a_queue_is_paused_and_resumed_and_the_audit_says_by_whom(filled: Site) -> None:
    paused = filled("POST", "/queues/work/pause", {"note": "inventory"}, by="all-operator")
    shown = filled("GET", "/queues/work?within=0.01", by="all-viewer").json()
    resumed = filled("POST", "/queues/work/resume", by="all-operator")

    assert (paused.status_code, shown["paused"]["note"]) == (200, "inventory")
    assert resumed.json() == {"was_paused": True}
    entries = filled("GET", "/audit?action=queue.", by="all-admin").json()["items"]
    assert [(entry["action"], entry["subject"], entry["user"], entry["note"]) for entry in entries] == [
        ("queue.resume", "work", "all-operator", ""),
        ("queue.pause", "work", "all-operator", "inventory"),
    ]


def test_a_queue_is_purged_by_who_types_its_name(filled: Site) -> None:
    mistyped = filled("POST", "/queues/work/purge", {"name": "wrok"}, by="all-admin")
    unsaid = filled("POST", "/queues/work/purge", by="all-admin")
    purged = filled("POST", "/queues/work/purge", {"name": "work"}, by="all-admin")

    assert (mistyped.status_code, unsaid.status_code) == (400, 400)
    assert purged.json() == {"purged": 2}


def test_messages_are_moved_to_another_queue_by_who_types_its_name(filled: Site) -> None:
    mistyped = filled("POST", "/queues/work/move", {"name": "wrok", "to": "billing"}, by="all-admin")
    missing = filled("POST", "/queues/work/move", {"name": "work", "to": "nowhere"}, by="all-admin")
    moved = filled("POST", "/queues/work/move", {"name": "work", "to": "billing", "count": 1}, by="all-admin")
    refused = filled("POST", "/queues/work/move", {"name": "work", "to": "billing"}, by="all-operator")

    assert [answer.status_code for answer in (mistyped, missing, refused)] == [400, 404, 403]
    assert moved.json() == {"moved": 1, "stayed": 0}
    listed = filled("GET", "/queues?within=0.01", by="all-viewer").json()
    ready = {one["queue"]: one["ready"] for one in listed["items"]}
    assert (ready["work"], ready["billing"]) == (1, 1)
    entry = filled("GET", "/audit?action=queue.move", by="all-admin").json()["items"][0]
    assert (entry["subject"], entry["after"]) == ("work", {"to": "billing", "count": 1, "task": None})


def test_dead_letters_are_listed_grouped_replayed_and_purged(filled: Site) -> None:
    assert filled("GET", "/dead-letters", by="all-operator").json() == {"items": ["work"]}
    letters = filled("GET", "/dead-letters/work?error=OSError", by="all-operator").json()["items"]
    groups = filled("GET", "/dead-letters/work/groups", by="all-operator").json()["items"]
    replayed = filled("POST", "/dead-letters/work/replay", {"error": "OSError"}, by="all-operator")
    mistyped = filled("POST", "/dead-letters/work/purge", {"name": "wrok"}, by="all-admin")
    purged = filled("POST", "/dead-letters/work/purge", {"name": "work", "job": "d0"}, by="all-admin")
    rest = filled("POST", "/dead-letters/work/purge", {"name": "work"}, by="all-admin")

    assert [(one["job_id"], one["reason"], one["attempt"]) for one in letters] == [("d2", "error", 3)]
    assert "secret" not in str(letters)
    assert [(group["count"], group["error_type"]) for group in groups] == [(2, "ValueError"), (1, "OSError")]
    assert replayed.json() == {"replayed": 1, "dropped": 0, "too_often": 0, "no_destination": 0}
    assert mistyped.status_code == 400
    assert (purged.json(), rest.json()) == ({"purged": 1}, {"purged": 1})
    assert filled("GET", "/dead-letters/nowhere", by="all-operator").json()["code"] == "queue_not_found"
    assert filled("GET", "/queues/work?within=0.01", by="all-viewer").json()["ready"] == 3


def test_a_dead_letter_of_a_lane_that_is_gone_is_replayed_to_its_queue(site: Site) -> None:
    async def fill(broker: Broker) -> None:
        await broker.declare([WorkQueue("work")])
        await broker.publish(_message("work.dlq", "d0", "OSError: full", origin="work.lane03"), timeout=10)

    _at_broker(site, fill)

    replayed = site("POST", "/dead-letters/work/replay", {}, by="all-operator").json()

    assert replayed["replayed"] == 1
    assert site("GET", "/queues/work?within=0.01", by="all-viewer").json()["ready"] == 1


@pytest.mark.parametrize("body", [{"rate": 0}, {"limit": 0}, {"older_than": "soon"}, {"evry": 1}])
def test_a_replay_that_cannot_be_is_refused(filled: Site, body: dict[str, Any]) -> None:
    assert filled("POST", "/dead-letters/work/replay", body, by="all-operator").status_code == 400


def test_a_schedule_is_shown_paused_resumed_and_run(site: Site) -> None:
    shown = site("GET", "/schedules/nightly", by="all-viewer").json()
    instants = site("GET", "/schedules/nightly/next?count=2&after=2027-01-30T12:00:00Z", by="all-viewer").json()
    paused = site("POST", "/schedules/nightly/pause", {"note": "inventory"}, by="all-operator").json()
    resumed = site("POST", "/schedules/nightly/resume", by="all-operator").json()

    assert (shown["starts"], shown["is_dynamic"], shown["fired"]) == ("report", False, 0)
    assert instants["items"] == ["2027-01-31T02:00:00.000Z", "2027-02-01T02:00:00.000Z"]
    assert (paused["note"], paused["next"], resumed["paused"]) == ("inventory", None, None)
    run = site("POST", "/schedules/nightly/run", by="all-operator")
    assert (run.status_code, run.json()["status"]) == (201, "submitted")


def test_a_rule_is_explained_before_it_is_kept(site: Site) -> None:
    rule = {"cron": "30 2 * * *", "tz": "Europe/Paris"}
    words = site("POST", "/schedules/explain?count=2", rule, by="all-viewer").json()
    wrong = site("POST", "/schedules/explain", {"cron": "61 * * * *"}, by="all-viewer")
    without = site("POST", "/schedules/explain", {}, by="all-viewer")

    assert words["means"] == "at 02:30 every day, Europe/Paris time"
    assert [text[11:] in ("02:30:00+01:00", "02:30:00+02:00") for text in words["next"]] == [True, True]
    assert (wrong.status_code, without.status_code) == (400, 400)
    assert "61" in wrong.text
    assert site("GET", "/schedules/nightly", by="all-viewer").json()["tz"] == "UTC"


def test_occurrences_of_the_past_are_listed_by_a_dry_run(site: Site) -> None:
    body = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-03T00:00:00Z", "dry_run": True}

    found = site("POST", "/schedules/nightly/backfill", body, by="all-operator").json()

    assert found == {
        "run": "",
        "instants": ["2024-01-01T02:00:00.000Z", "2024-01-02T02:00:00.000Z"],
        "has_more": False,
    }


def test_tasks_are_listed_with_the_schema_of_their_arguments(site: Site) -> None:
    names = [task["name"] for task in site("GET", "/tasks").json()["items"]]
    first = site("GET", "/tasks?limit=2").json()
    second = site("GET", f"/tasks?limit=2&cursor={first['next']}").json()
    task = site("GET", "/tasks/billing.charge").json()

    assert names == ["billing.charge", "data_processing", "report"]
    assert [one["name"] for one in (*first["items"], *second["items"])] == names
    assert second["next"] is None
    assert (task["queue"], task["is_own"], task["arguments"]["required"]) == ("billing", True, ["amount"])
    assert site("GET", "/tasks/nothing").json()["code"] == "task_not_found"


def test_a_definition_has_versions_and_jobs_are_made_from_it(site: Site) -> None:
    body = {"task": "data_processing", "kwargs": {"key": "value"}, "priority": "low", "labels": {"team": "web"}}

    first = site("PUT", "/definitions/monthly", body, headers={"If-None-Match": "*"})
    same = site("PUT", "/definitions/monthly", body)
    taken = site("PUT", "/definitions/monthly", body, headers={"If-None-Match": "*"})
    second = site("PUT", "/definitions/monthly", {**body, "kwargs": {}}, headers={"If-Match": '"1"'})
    site.submit(job_id="j1", job_type="monthly", payload={"key": "own"}, priority=None)

    assert [answer.json()["version"] for answer in (first, same, second)] == [1, 1, 2]
    assert (taken.status_code, taken.json()["code"], taken.json()["version"]) == (412, "version_mismatch", 1)
    assert [one["version"] for one in site("GET", "/definitions/monthly/versions").json()["items"]] == [2, 1]
    assert site("GET", "/definitions/monthly?version=1").json()["kwargs"] == {"key": "value"}
    job = site("GET", "/jobs/j1?expand=payload").json()
    assert (job["task"], job["payload"], job["priority"]) == ("data_processing", {"key": "own"}, 1)
    assert [one["name"] for one in site("GET", "/definitions").json()["items"]] == ["monthly"]
    assert site("DELETE", "/definitions/monthly").json() == {"status": "deleted", "name": "monthly"}
    assert site("GET", "/definitions/monthly").json()["code"] == "definition_not_found"


def test_definitions_are_their_tenants_own_and_of_tasks_that_the_caller_may_call(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing"})

    assert site("GET", "/definitions/monthly", by="other-admin").status_code == 404
    assert site("GET", "/definitions", by="other-admin").json()["items"] == []
    assert site("POST", "/jobs", {"job_type": "monthly"}, by="other-admin").json()["code"] == "unknown_task"
    refused = site("POST", "/jobs", {"job_type": "monthly"}, by="picky")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert site("PUT", "/definitions/mine", {"task": "data_processing"}, by="picky").status_code == 403
    assert site("DELETE", "/definitions/monthly", by="picky").json()["code"] == "not_allowed"
    assert site("GET", "/definitions/monthly").status_code == 200


def test_what_is_done_to_definitions_is_in_the_audit_without_their_arguments(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing", "kwargs": {"key": "secret"}}, by="acme-operator")
    site("DELETE", "/definitions/monthly", by="acme-operator")

    answer = site("GET", "/audit?action=definition.")
    assert [(each["action"], each["user"], each["subject"]) for each in answer.json()["items"]] == [
        ("definition.delete", "acme-operator", "monthly"),
        ("definition.put", "acme-operator", "monthly"),
    ]
    assert "data_processing" in answer.text
    assert "secret" not in answer.text


@pytest.mark.parametrize("period", ["3000000d", "9999999d", 3.2e11])
def test_a_schedule_that_is_never_due_before_the_year_10000_is_refused(site: Site, period: Any) -> None:
    rule = {"every": period}
    put = site("PUT", "/schedules/poison", {"task": "report", **rule})
    explained = site("POST", "/schedules/explain", rule)

    assert (put.status_code, explained.status_code) == (400, 400), (put.text, explained.text)
    assert "year 9999" in put.json()["detail"]
    assert site("GET", "/schedules/poison").status_code == 404


def test_one_tenants_schedule_takes_the_list_away_from_nobody(site: Site) -> None:
    own = TenantSchedules(site.app, "acme", allows=lambda _: True)

    async def store() -> None:
        # As a version stored it that took any period.
        for name in ("poison", "good"):
            trigger = Every(3_000_000 * 86_400_000) if name == "poison" else every("1h")
            await own.add(name, "report", trigger, args=(), kwargs={}, options={})

    with site.client.portal() as portal:
        portal.call(store)

    mine = site("GET", "/schedules").json()["items"]
    everybodys = site("GET", "/schedules", by="all-viewer").json()["items"]
    shown = site("GET", "/schedules/poison").json()
    assert [one["name"] for one in mine] == ["good", "poison"]
    assert {"@acme:good", "@acme:poison", "nightly"} <= {one["name"] for one in everybodys}
    assert (shown["next"], shown["rule"]) == (None, "every 3000000 days")
    assert site("GET", "/schedules/poison/next").json() == {"items": []}
    assert site("GET", "/schedules/poison/explain").json()["next"] == []
    assert site("DELETE", "/schedules/poison").status_code == 200


def test_instants_beyond_the_calendar_are_refused_or_the_last_there_is(site: Site) -> None:
    beyond = "9999-12-31T23:59:59.999999-12:00"
    asked = [
        site("GET", f"/schedules/nightly/next?after={beyond}", by="all-viewer"),
        site("GET", f"/jobs?start_time={beyond}"),
        site("POST", "/jobs", {"job_type": "report", "schedule_time": beyond}),
        site("PUT", "/schedules/late", {"task": "report", "at": beyond}),
        site("POST", "/alerts/silences", {"rule": "x", "until": beyond, "note": "x"}),
        site("GET", f"/audit?since={beyond}"),
    ]

    assert {answer.status_code // 100 for answer in asked} <= {2, 4}, [answer.text for answer in asked]
    assert site("GET", "/jobs").status_code == 200
    assert site("GET", "/schedules").status_code == 200
    assert site("GET", "/alerts/silences").status_code == 200


def test_a_list_leaves_out_what_cannot_be_rendered_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert rendered(lambda one: 6 // one, [3, 0, 2]) == [2, 3]

    (record,) = caplog.records
    assert record.getMessage() == "a list leaves out a int, which cannot be rendered: ZeroDivisionError"
