"""Queues and dead letters over HTTP."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from taskmq.app_api import queues
from taskmq.contracts.broker import Broker, Outgoing
from taskmq.contracts.history import QueueDepth, history_of
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, minute_of
from taskmq.model.topology import WorkQueue
from tests.docs.blocks import ROOT
from tests.unit.server.kit import Site

_DEPLOY: Final = ROOT / "contrib" / "deploy"


def _at_broker(site: Site, use: Callable[[Broker], Awaitable[None]]) -> None:
    """Call the site's broker, which is in this process."""

    async def run() -> None:
        async with site.app:
            await use(site.app.sessions.current().broker)

    asyncio.run(run())


@pytest.fixture
def filled_site(site: Site) -> Site:
    """Build a site with two messages in queue `work`, and three dead letters of two failures."""

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


def test_queues_are_listed_and_shown(filled_site: Site) -> None:
    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()
    shown = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()

    assert {one["queue"]: one["ready"] for one in listed["items"]}["work"] == 2
    assert (shown["ready"], shown["dead"], shown["tasks"]) == (2, 3, ["data_processing", "report"])
    assert filled_site("GET", "/queues/nowhere?within=0.01", by="all-viewer").json()["code"] == "queue_not_found"


def test_the_demand_of_a_queue_scales_workers_by_the_jobs_in_the_store(filled_site: Site) -> None:
    _, scaled = yaml.safe_load_all((_DEPLOY / "kubernetes" / "keda.yml").read_text())
    trigger = scaled["spec"]["triggers"][0]["metadata"]
    path = urlsplit(trigger["url"]).path.removeprefix("/api/v1").replace("/default/", "/work/")
    for number in range(40):
        priority = "low" if number < 4 else "high"
        filled_site.submit(job_id=f"n{number}", schedule_time=None, priority=priority)

    found = filled_site("GET", path, by="all-viewer").json()

    assert (found["demand"], found["stored"], found["ready"], found["in_hand"]) == (42, 40, 2, 0)
    assert found["is_exact"]
    assert found["oldest"].startswith("20")
    # By the formula of KEDA: the metric divided by the target, rounded up.
    assert math.ceil(found[trigger["valueLocation"]] / int(trigger["targetValue"])) == 3
    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()["queues"]
    assert {one["queue"]: one["stored"] for one in listed}["work"] == 40
    shown = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()
    assert shown["by_tenant"] == [{"name": "acme", "jobs": 40}]
    assert shown["by_priority"] == [{"name": "8", "jobs": 36}, {"name": "1", "jobs": 4}]
    assert (shown["tenants"], shown["is_exact"]) == (1, True)
    assert filled_site("GET", "/queues/nowhere/demand", by="all-viewer").json()["code"] == "queue_not_found"


def test_a_queue_with_too_many_jobs_or_tenants_says_so(filled_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_WAITING", 2)
    monkeypatch.setattr(queues, "_MOST_TENANTS", 1)
    for number, tenant in enumerate(("acme", "other")):
        filled_site.submit("all-admin", tenant, job_id=f"n{number}", schedule_time=None)

    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()["queues"]
    shown = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()
    demand = filled_site("GET", "/queues/work/demand", by="all-viewer").json()

    assert [one["queue"] for one in listed if not one["is_exact"]] == ["work"]
    assert (len(shown["by_tenant"]), shown["tenants"], shown["is_exact"]) == (1, 2, False)
    assert (demand["stored"], demand["is_exact"]) == (2, False)


def test_a_queue_is_one_row_with_its_parts_and_its_letters_need_no_worker(filled_site: Site) -> None:
    filled_site("POST", "/queues/work/pause", {}, by="all-operator")

    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()

    rows = {one["queue"]: one for one in listed["queues"]}
    assert {"work", "billing"} <= rows.keys()
    assert not [name for name in rows if name.endswith((".dlq", ".p.high", ".p.low", ".jobs", ".parcels"))]
    assert (rows["work"]["ready"], rows["work"]["dead"], rows["work"]["is_paused"]) == (2, 3, True)
    assert {"work", "work.dlq"} <= {*rows["work"]["parts"]}
    assert sorted(part for one in rows.values() for part in one["parts"]) == sorted(
        one["queue"] for one in listed["items"]
    )


def test_a_queue_has_the_rates_at_which_jobs_entered_and_left_it(filled_site: Site) -> None:
    async def sample() -> None:
        store = filled_site.app.sessions.store()
        history, now = history_of(store), minute_of(await store.now_ms())
        for minutes, stored in ((4, 300), (1, 120)):
            depth = QueueDepth(queue="work", at=now - minutes * MINUTE, stored=stored, ready=0, in_hand=0)
            await history.depths.add([depth])
        await history.rollups.add([Rollup(RollupKey(now - 3 * MINUTE, "report", "work", ""), {"succeeded": 360})])

    before = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()
    with filled_site.client.portal() as portal:
        portal.call(sample)
    shown = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()
    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()["queues"]

    names = ("entered", "left", "empty_in", "advice")
    assert [before[name] for name in names] == [None, None, None, ""]
    assert shown["more_workers"] == []
    # No worker consumes it: nothing says when it is empty.
    assert [shown[name] for name in names] == [1.0, 2.0, None, ""]
    (row,) = [one for one in listed if one["queue"] == "work"]
    assert [row[name] for name in names] == [shown[name] for name in names]


def test_a_queue_is_paused_and_resumed_and_the_audit_names_the_user(filled_site: Site) -> None:
    paused = filled_site("POST", "/queues/work/pause", {"note": "inventory"}, by="all-operator")
    shown = filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()
    resumed = filled_site("POST", "/queues/work/resume", by="all-operator")

    assert (paused.status_code, shown["paused"]["note"]) == (200, "inventory")
    assert resumed.json() == {"was_paused": True}
    entries = filled_site("GET", "/audit?action=queue.", by="all-admin").json()["items"]
    assert [(entry["action"], entry["subject"], entry["user"], entry["note"]) for entry in entries] == [
        ("queue.resume", "work", "all-operator", ""),
        ("queue.pause", "work", "all-operator", "inventory"),
    ]


def test_purging_a_queue_requires_typing_its_name(filled_site: Site) -> None:
    mistyped = filled_site("POST", "/queues/work/purge", {"name": "wrok"}, by="all-admin")
    unsaid = filled_site("POST", "/queues/work/purge", by="all-admin")
    purged = filled_site("POST", "/queues/work/purge", {"name": "work"}, by="all-admin")

    assert (mistyped.status_code, unsaid.status_code) == (400, 400)
    assert purged.json() == {"purged": 2}


def test_moving_messages_to_another_queue_requires_typing_its_name(filled_site: Site) -> None:
    mistyped = filled_site("POST", "/queues/work/move", {"name": "wrok", "to": "billing"}, by="all-admin")
    missing = filled_site("POST", "/queues/work/move", {"name": "work", "to": "nowhere"}, by="all-admin")
    moved = filled_site("POST", "/queues/work/move", {"name": "work", "to": "billing", "count": 1}, by="all-admin")
    refused = filled_site("POST", "/queues/work/move", {"name": "work", "to": "billing"}, by="all-operator")

    assert [answer.status_code for answer in (mistyped, missing, refused)] == [400, 404, 403]
    assert moved.json() == {"moved": 1, "stayed": 0}
    listed = filled_site("GET", "/queues?within=0.01", by="all-viewer").json()
    ready = {one["queue"]: one["ready"] for one in listed["items"]}
    assert (ready["work"], ready["billing"]) == (1, 1)
    entry = filled_site("GET", "/audit?action=queue.move", by="all-admin").json()["items"][0]
    assert (entry["subject"], entry["after"]) == ("work", {"to": "billing", "count": 1, "task": None})


def test_dead_letters_are_listed_grouped_replayed_and_purged(filled_site: Site) -> None:
    assert filled_site("GET", "/dead-letters", by="all-operator").json() == {"items": ["work"]}
    letters = filled_site("GET", "/dead-letters/work?error=OSError", by="all-operator").json()["items"]
    groups = filled_site("GET", "/dead-letters/work/groups", by="all-operator").json()["items"]
    replayed = filled_site("POST", "/dead-letters/work/replay", {"error": "OSError"}, by="all-operator")
    mistyped = filled_site("POST", "/dead-letters/work/purge", {"name": "wrok"}, by="all-admin")
    purged = filled_site("POST", "/dead-letters/work/purge", {"name": "work", "job": "d0"}, by="all-admin")
    rest = filled_site("POST", "/dead-letters/work/purge", {"name": "work"}, by="all-admin")

    assert [(one["job_id"], one["reason"], one["attempt"]) for one in letters] == [("d2", "error", 3)]
    assert "secret" not in str(letters)
    assert [(group["count"], group["error_type"]) for group in groups] == [(2, "ValueError"), (1, "OSError")]
    assert replayed.json() == {"replayed": 1, "dropped": 0, "too_often": 0, "no_destination": 0}
    assert mistyped.status_code == 400
    assert (purged.json(), rest.json()) == ({"purged": 1}, {"purged": 1})
    assert filled_site("GET", "/dead-letters/nowhere", by="all-operator").json()["code"] == "queue_not_found"
    assert filled_site("GET", "/queues/work?within=0.01", by="all-viewer").json()["ready"] == 3


def test_a_dead_letter_of_a_deleted_lane_is_replayed_to_its_queue(site: Site) -> None:
    async def fill(broker: Broker) -> None:
        await broker.declare([WorkQueue("work")])
        await broker.publish(_message("work.dlq", "d0", "OSError: full", origin="work.lane03"), timeout=10)

    _at_broker(site, fill)

    replayed = site("POST", "/dead-letters/work/replay", {}, by="all-operator").json()

    assert replayed["replayed"] == 1
    assert site("GET", "/queues/work?within=0.01", by="all-viewer").json()["ready"] == 1


@pytest.mark.parametrize("body", [{"rate": 0}, {"limit": 0}, {"older_than": "soon"}, {"evry": 1}])
def test_an_invalid_replay_is_refused(filled_site: Site, body: dict[str, Any]) -> None:
    assert filled_site("POST", "/dead-letters/work/replay", body, by="all-operator").status_code == 400


def test_all_checks_of_the_system_run_again_on_request(filled_site: Site) -> None:
    def has_letters(query: str = "") -> bool:
        found = filled_site("GET", f"/health/system{query}", by="all-viewer").json()["findings"]
        return any(one["about"] == "work" and "dead letters" in one["finding"] for one in found)

    assert has_letters()
    assert filled_site("POST", "/dead-letters/work/purge", {"name": "work"}, by="all-admin").is_success
    assert has_letters()

    assert not has_letters("?max_age=0")
    assert not has_letters()
