"""Dead letters over HTTP, as operators of two tenants see them in a shared queue."""

import asyncio
from typing import Any

import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue
from tests.unit.server.kit import Site

_OPERATOR = "acme-operator"
_ALL = "all-operator"


@pytest.fixture
def shared_site(site: Site) -> Site:
    """Build a site whose queue `work` has dead letters of two tenants and of none, alternating."""

    async def fill() -> None:
        async with site.app:
            broker = site.app.sessions.current().broker
            await broker.declare([WorkQueue("work"), WorkQueue("billing")])
            for number, tenant in enumerate(["acme", "other", "", "acme", "other"]):
                await broker.publish(_letter(f"d{number}", tenant), timeout=10)
            await broker.publish(_letter("b0", "other", queue="billing.dlq"), timeout=10)

    asyncio.run(fill())
    return site


def _letter(name: str, tenant: str, *, queue: str = "work.dlq") -> Outgoing:
    said = f'"tenant": "{tenant}", ' if tenant else ""
    return Outgoing(
        queue=queue,
        body=f'{{"id": "{name}", {said}"task": "data_processing", "attempt": 3}}'.encode(),
        content_type="application/json",
        job_id=name,
        task="data_processing",
        headers={
            "x-taskmq-reason": "error",
            "x-taskmq-error": f"ValueError: of {tenant or 'nobody'}",
            "x-taskmq-origin": queue.removesuffix(".dlq"),
        },
    )


def _jobs(site: Site, query: str = "", *, by: str = _ALL) -> list[tuple[str, str]]:
    items = site("GET", f"/dead-letters/work{query}", by=by).json()["items"]
    return [(one["job_id"], one["tenant"]) for one in items]


def test_an_operator_of_a_tenant_sees_only_the_letters_of_her_tenant(shared_site: Site) -> None:
    assert _jobs(shared_site, by=_OPERATOR) == [("d0", "acme"), ("d3", "acme")]
    assert _jobs(shared_site, "?job=d1", by=_OPERATOR) == []
    assert _jobs(shared_site, "?job=d2", by=_OPERATOR) == []
    (group,) = shared_site("GET", "/dead-letters/work/groups", by=_OPERATOR).json()["items"]
    assert (group["count"], group["sample"]) == (2, "d0")


def test_a_queue_with_only_foreign_letters_is_not_listed_for_a_tenant(shared_site: Site) -> None:
    assert shared_site("GET", "/dead-letters", by=_OPERATOR).json() == {"items": ["work"]}
    assert shared_site("GET", "/dead-letters?tenant=acme", by=_ALL).json() == {"items": ["work"]}
    assert shared_site("GET", "/dead-letters", by=_ALL).json() == {"items": ["billing", "work"]}


def test_a_role_on_the_instance_sees_all_letters_or_those_of_one_tenant_or_of_none(shared_site: Site) -> None:
    assert [name for name, _ in _jobs(shared_site)] == ["d0", "d1", "d2", "d3", "d4"]
    assert _jobs(shared_site, "?tenant=other") == [("d1", "other"), ("d4", "other")]
    assert _jobs(shared_site, "?tenant=") == [("d2", "")]


def test_an_operator_of_a_tenant_replays_only_the_letters_of_her_tenant(shared_site: Site) -> None:
    replayed = shared_site("POST", "/dead-letters/work/replay", {}, by=_OPERATOR)
    foreign = shared_site("POST", "/dead-letters/work/replay", {"job": "d1"}, by=_OPERATOR)

    assert (replayed.json()["replayed"], foreign.json()["replayed"]) == (2, 0)
    assert [name for name, _ in _jobs(shared_site)] == ["d1", "d2", "d4"]
    assert shared_site("GET", "/queues/work?within=0.01", by="all-viewer").json()["ready"] == 2
    entries = shared_site("GET", "/audit?action=dead_letters.", by="all-admin").json()["items"]
    assert [(one["tenant"], one["user"], one["action"]) for one in entries] == [
        ("acme", _OPERATOR, "dead_letters.replay")
    ] * 2


def test_an_operator_of_a_tenant_purges_only_the_letters_of_her_tenant(shared_site: Site) -> None:
    foreign = shared_site("POST", "/dead-letters/work/purge", {"name": "work", "job": "d4"}, by=_OPERATOR)
    purged = shared_site("POST", "/dead-letters/work/purge", {"name": "work"}, by=_OPERATOR)

    assert (foreign.json(), purged.json()) == ({"purged": 0}, {"purged": 2})
    assert [name for name, _ in _jobs(shared_site)] == ["d1", "d2", "d4"]


def test_a_purge_by_the_instance_for_a_tenant_deletes_only_its_letters(shared_site: Site) -> None:
    purged = shared_site("POST", "/dead-letters/work/purge?tenant=other", {"name": "work"}, by="all-admin")

    assert purged.json() == {"purged": 2}
    assert [name for name, _ in _jobs(shared_site)] == ["d0", "d2", "d3"]


@pytest.mark.parametrize("body", [{"to": "billing"}, {"rate": 0.01}], ids=str)
def test_target_and_rate_of_a_replay_require_a_role_on_the_instance(shared_site: Site, body: dict[str, Any]) -> None:
    refused = shared_site("POST", "/dead-letters/work/replay", body, by=_OPERATOR)
    by_name = shared_site("POST", "/dead-letters/work/replay?tenant=acme", {**body, "limit": 1}, by=_ALL)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (by_name.status_code, by_name.json()["replayed"]) == (200, 1)


@pytest.mark.parametrize("by", ["acme-viewer", "acme-submitter", "importer", "nobody"])
def test_letters_require_the_operator_role_of_the_tenant(shared_site: Site, by: str) -> None:
    answers = [
        shared_site("GET", "/dead-letters", by=by),
        shared_site("GET", "/dead-letters/work", by=by),
        shared_site("POST", "/dead-letters/work/replay", {}, by=by),
        shared_site("POST", "/dead-letters/work/purge", {"name": "work"}, by=by),
    ]

    assert {answer.status_code for answer in answers} == {403}


def test_letters_of_another_tenant_cannot_be_requested_by_its_name(shared_site: Site) -> None:
    answer = shared_site("GET", "/dead-letters/work?tenant=other", by=_OPERATOR)

    assert (answer.status_code, answer.json()["code"]) == (404, "tenant_not_found")


@pytest.mark.parametrize("queue", [PARKING, UNROUTABLE])
def test_unroutable_messages_belong_to_their_tenant_and_unreadable_ones_to_none(site: Site, queue: str) -> None:
    async def fill() -> None:
        async with site.app:
            broker = site.app.sessions.current().broker
            await broker.declare([WorkQueue("work")])
            for name, tenant in (("p0", "acme"), ("p1", "other")):
                await broker.publish(_letter(name, tenant, queue=queue), timeout=10)
            broken = Outgoing(
                queue=queue, body=b'{"tenant": "acme"', content_type="application/json", job_id="p2", task=""
            )
            await broker.publish(broken, timeout=10)

    asyncio.run(fill())

    def ids(by: str) -> list[str]:
        items = site("GET", f"/dead-letters/{queue}", by=by).json()["items"]
        return [one["job_id"] for one in items]

    assert ids(_OPERATOR) == ["p0"]
    assert ids(_ALL) == ["p0", "p1", "p2"]


def test_a_message_is_shown_on_request(shared_site: Site) -> None:
    plain, whole = (
        shared_site("GET", f"/dead-letters/work?job=d0{more}", by=_OPERATOR).json()["items"][0]["body"]
        for more in ("", "&expand=body")
    )

    assert plain is None
    assert '"id": "d0"' in whole


def test_a_dry_run_previews_a_replay_and_a_purge_and_changes_nothing(shared_site: Site) -> None:
    planned = shared_site("POST", "/dead-letters/work/replay", {"dry_run": True, "limit": 1}, by=_OPERATOR).json()
    counted = shared_site(
        "POST", "/dead-letters/work/purge", {"name": "work", "dry_run": True}, by="acme-admin"
    ).json()
    few = shared_site("POST", "/dead-letters/work/purge", {"name": "work", "limit": 1}, by="acme-admin").json()

    assert (planned["replayed"], [(one["job_id"], one["to"]) for one in planned["planned"]]) == (1, [("d0", "work")])
    assert (counted, few) == ({"purged": 2}, {"purged": 1})
    assert _jobs(shared_site, by=_OPERATOR) == [("d3", "acme")]
    entries = shared_site("GET", "/audit?action=dead_letters.", by="all-admin").json()["items"]
    assert [one["action"] for one in entries] == ["dead_letters.purge"]
