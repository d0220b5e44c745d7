"""Nodes and resources over HTTP, with the bodies of document 000."""

import asyncio
from pathlib import Path
from typing import Any

from taskmq import TaskMQ, WorkQueue
from taskmq.model.nodes import NodeTold
from tests.unit.server.kit import DOCUMENT, Site, open_site


def _register(site: Site, name: str = "render-1", **changes: Any) -> str:
    body = {"name": name, "ip": "10.0.0.9", "capacity": {"cpu": 8, "memory": "16G", "storage": "1T"}, **changes}
    answer = site("POST", "/nodes/register", body, by="all-operator")
    assert answer.status_code == 201, answer.text
    assert set(answer.json()) == {"node_id", "name", "status"}
    return str(answer.json()["node_id"])


def _allocate(site: Site, **fields: Any) -> Any:
    return site("POST", "/resources/allocate", {"job_id": "order-17", "node_id": "any", **fields}, by="all-operator")


def test_a_node_is_registered_and_listed_in_the_terms_of_the_document(site: Site) -> None:
    node = _register(site)

    (listed,) = site("GET", "/nodes/list", by="all-viewer").json()

    assert (listed["node_id"], listed["name"], listed["ip_address"], listed["status"]) == (
        node,
        "render-1",
        "10.0.0.9",
        "available",
    )
    assert listed["capacity"] == {"cpu": 8.0, "memory": 16 * 2**30, "storage": 2**40}
    assert site("GET", "/nodes", by="all-viewer").json()["items"] == [listed]
    assert site("GET", f"/nodes/{node}", by="all-viewer").json() == listed


def test_a_node_that_registers_again_keeps_its_id(site: Site) -> None:
    first = _register(site)

    assert _register(site, capacity={"cpu": 2}, heartbeat_seconds=10) == first

    assert site("GET", "/nodes/render-1", by="all-viewer").json()["capacity"] == {"cpu": 2.0}


def test_the_status_of_a_node_is_updated_in_the_terms_of_the_document(site: Site) -> None:
    node = _register(site)

    for status in ("busy", "available", "draining"):
        body = {"node_id": node, "status": status}
        answer = site("POST", "/nodes/update-status", body, by="all-operator")

        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert site("GET", "/nodes/list", by="all-viewer").json()[0]["status"] == status

    unknown = site("POST", "/nodes/update-status", {"node_id": "x", "status": "busy"}, by="all-operator")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "node_not_found")
    odd = site("POST", "/nodes/update-status", {"node_id": node, "status": "lost"}, by="all-operator")
    assert odd.status_code == 400


def test_a_heartbeat_ends_no_drain_and_the_start_of_a_drain_is_audited_once(site: Site) -> None:
    node = _register(site)

    def say(status: str) -> str:
        body = {"node_id": node, "status": status}
        return str(site("POST", "/nodes/update-status", body, by="all-operator").json()["status"])

    assert [say(status) for status in ("draining", "draining", "busy", "available")] == ["draining"] * 4
    assert site("POST", "/nodes/render-1/resume", by="all-operator").json()["status"] == "available"
    assert say("available") == "available"
    entries = site("GET", "/audit?action=node.", by="all-admin").json()["items"]
    assert [entry["action"] for entry in entries] == ["node.resume", "node.drain", "node.register"]


def test_a_node_reported_by_workers_cannot_be_changed_by_a_caller(site: Site) -> None:
    async def tell() -> None:
        async with TaskMQ("memory://other", store=site.app.sessions.store_url) as other:
            await other.sessions.store().nodes.report([NodeTold(name="gpu-1", runs_jobs=True)])

    asyncio.run(tell())

    for status in ("busy", "draining", "available"):
        body = {"node_id": "gpu-1", "status": status}
        answer = site("POST", "/nodes/update-status", body, by="all-operator")
        assert (answer.status_code, answer.json()["code"]) == (409, "node_in_use")
    assert site("GET", "/nodes/gpu-1", by="all-viewer").json()["status"] == "available"


def test_resources_are_allocated_used_and_released(site: Site) -> None:
    node = _register(site)

    made = _allocate(site, cpu=6, memory="1G", storage=0)
    full = _allocate(site, cpu=6)
    used = site("GET", "/nodes/render-1", by="all-viewer").json()["used"]
    allocation = made.json()["allocation_id"]
    released = site("POST", "/resources/release", {"allocation_id": allocation}, by="all-operator")
    again = site("POST", "/resources/release", {"allocation_id": allocation}, by="all-operator")

    assert (made.status_code, made.json()["node_id"], made.json()["status"]) == (201, node, "allocated")
    assert (full.status_code, full.json()["code"]) == (409, "no_capacity")
    assert used == {"cpu": 6.0, "memory": 2**30}
    assert (released.json()["status"], again.json()) == ("released", released.json())
    assert site("GET", "/nodes/render-1", by="all-viewer").json()["used"] == {}
    assert _allocate(site, cpu=6, node_id=node).status_code == 201


def test_usage_is_reported_by_node_job_and_time(site: Site) -> None:
    _register(site)
    _register(site, "render-2", capacity={"cpu": 1})
    first = _allocate(site, cpu=1).json()
    second = _allocate(site, cpu=1, job_id="other").json()

    def usage(query: str = "") -> Any:
        answer = site("GET", f"/resources/usage{query}", by="all-viewer")
        assert answer.status_code == 200, answer.text
        return answer.json()

    whole = usage()
    assert [each["allocation_id"] for each in whole["items"]] == [
        second["allocation_id"],
        first["allocation_id"],
    ]
    assert (whole["allocations"], whole["is_bounded"], set(whole["hours"])) == (2, False, {"cpu"})
    assert [each["job_id"] for each in usage("?job_id=order-17")["items"]] == ["order-17"]
    assert [each["job_id"] for each in usage("?node_id=render-1")["items"]] == ["other"]
    assert usage("?end_time=2020-01-01T00:00:00Z") == {
        "hours": {},
        "allocations": 0,
        "is_bounded": False,
        "items": [],
        "next": None,
    }
    page = usage("?limit=1")
    assert [each["job_id"] for each in usage(f"?limit=1&cursor={page['next']}")["items"]] == ["order-17"]


def test_a_node_is_drained_resumed_and_removed_and_the_audit_names_the_user(site: Site) -> None:
    _register(site)

    drained = site("POST", "/nodes/render-1/drain", by="all-operator")
    refused = _allocate(site, cpu=1)
    resumed = site("POST", "/nodes/render-1/resume", by="all-operator")
    removed = site("DELETE", "/nodes/render-1", by="all-operator")

    assert [answer.json()["status"] for answer in (drained, resumed)] == ["draining", "available"]
    assert refused.status_code == 409
    assert removed.status_code == 200
    assert site("GET", "/nodes/render-1", by="all-viewer").json()["code"] == "node_not_found"
    entries = site("GET", "/audit?action=node.", by="all-admin").json()["items"]
    assert [entry["action"] for entry in entries] == ["node.remove", "node.resume", "node.drain", "node.register"]


def test_an_invalid_request_is_refused_with_its_field_or_name(site: Site) -> None:
    assert _allocate(site).json()["errors"][0]["field"] == "cpu"
    assert _allocate(site, gpu=0.5).status_code == 400
    assert _allocate(site, cpu=1, node_id="nowhere").json()["code"] == "node_not_found"
    for body in ({"name": "no spaces"}, {"name": "a", "capacity": {"Cpu": 1}}, {"name": "a.jobs"}):
        assert site("POST", "/nodes/register", body, by="all-operator").status_code == 400, body
    absent = site("POST", "/resources/release", {"allocation_id": "x"}, by="all-operator")
    assert absent.json()["code"] == "allocation_not_found"


def test_a_job_may_request_a_node_if_its_queue_places_jobs(tmp_path: Path) -> None:
    queues = [WorkQueue("work", placed=True)]
    with open_site(tmp_path, queues=queues) as site:
        body = {
            **DOCUMENT,
            "schedule_time": None,
            "resources": {"gpu": 2, "memory": 1073741824.0},
            "node_labels": {"zone": "a"},
        }
        made = site("POST", "/jobs", body)
        reasons = site("GET", "/jobs/order-17/explain").json()["reasons"]
        refused = site(
            "POST", "/jobs", {"job_type": "billing.charge", "payload": {"amount": 1}, "resources": {"gpu": 1}}
        )
        odd = site("POST", "/jobs", {**body, "job_id": "odd", "resources": {"gpu": 0.5}})

    assert made.status_code == 201, made.text
    assert any("unschedulable" in reason for reason in reasons), reasons
    assert refused.status_code == 400
    assert "placed=True" in refused.json()["detail"]
    assert odd.json()["errors"][0]["field"] == "resources"
