"""Failures over HTTP: one list, its permissions, and the missing parts."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.history import history_of
from taskmq.model.history.rollups import RunFailure
from taskmq.model.identity import Identity, Membership, Permission, Role
from taskmq.model.topology import WorkQueue
from taskmq.testing.job_store_suite.driver import JobDriver, error
from tests.unit.server.kit import CALLERS, Site, open_site

_AT = 1_790_000_000_000


@pytest.fixture
def failed_site(tmp_path: Path) -> Iterator[Site]:
    """Build a site where a stored job, a reported one and a dead letter of each of two tenants failed."""
    with open_site(tmp_path) as site:
        asyncio.run(_fail(site))
        yield site


async def _fail(site: Site) -> None:
    async with site.app:
        store = site.app.sessions.store()
        broker = site.app.sessions.current().broker
        await broker.declare([WorkQueue("work")])
        for number, tenant in enumerate(("acme", "other")):
            job = await JobDriver(store).dispatch_new(
                tenant=tenant, key="stored", queue="work", task="data_processing"
            )
            said = error("no\nand more")
            await JobDriver(store).expect_accepted(job, "failed", error=said, started=_AT + number, ran=1)
            report = RunFailure(
                at=_AT + 10 + number, job=f"of-{tenant}", event="dead", task="report", queue="work", tenant=tenant,
                error="OSError", message="full", traceback="T",
            )  # fmt: skip
            await history_of(store).rollups.add([], [report])
            body = {"id": f"letter-of-{tenant}", "task": "report", "tenant": tenant, "attempt": 2}
            letter = Outgoing(
                queue="work.dlq",
                body=json.dumps(body).encode(),
                content_type="application/json",
                job_id=f"letter-of-{tenant}",
                task="report",
                headers={"x-taskmq-error": "E: x", "x-taskmq-origin": "work", "x-taskmq-died": _AT + 20 + number},
            )
            await broker.publish(letter, timeout=10)


def _ids(site: Site, query: str = "", *, by: str = "acme-operator") -> list[str]:
    return [one["job_id"] for one in site("GET", f"/failures{query}", by=by).json()["items"]]


def test_an_operator_of_a_tenant_sees_all_failures_of_her_tenant(failed_site: Site) -> None:
    answer = failed_site("GET", "/failures", by="acme-operator").json()

    assert [(one["lane"], one["job_id"], one["tenant"]) for one in answer["items"]] == [
        ("broker", "letter-of-acme", "acme"),
        ("broker", "of-acme", "acme"),
        ("store", "stored", "acme"),
    ]
    assert [(one["summary"], one["remedy"], one["is_handled"]) for one in answer["items"]] == [
        ("E: x", "replay", False),
        ("OSError: full", "", True),
        ("ValueError: no", "retry", False),
    ]
    assert [one["traceback"] for one in answer["items"]] == [None] * 3
    assert (answer["next"], answer["missing"]) == (None, [])


def test_a_role_on_the_instance_sees_failures_of_all_tenants_or_of_one(failed_site: Site) -> None:
    assert len(_ids(failed_site, by="all-operator")) == 6
    assert _ids(failed_site, "?tenant=other", by="all-operator") == ["letter-of-other", "of-other", "stored"]
    assert _ids(failed_site, "?tenant=", by="all-operator") == []
    assert "@other:stored" in _ids(failed_site, by="all-operator")


def test_a_viewer_without_access_to_dead_letters_is_told_so_and_sees_the_rest(failed_site: Site) -> None:
    answer = failed_site("GET", "/failures", by="acme-viewer").json()

    assert [one["job_id"] for one in answer["items"]] == ["of-acme", "stored"]
    assert {one["is_handled"] for one in answer["items"] if one["lane"] == "broker"} == {None}
    assert answer["missing"] == [{"source": "dead letters", "why": "you are not permitted to see them"}]


def test_a_token_for_jobs_only_sees_no_letters_and_no_workflows(
    failed_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Identity(
        user_id="reader", user="reader", memberships=(Membership("acme", Role.ADMIN),), via="token",
        credential="reader", scopes=frozenset({Permission.JOBS_READ}),
    )  # fmt: skip
    monkeypatch.setitem(CALLERS, "reader", reader)

    answer = failed_site("GET", "/failures", by="reader").json()

    assert [one["job_id"] for one in answer["items"]] == ["of-acme", "stored"]
    assert [one["source"] for one in answer["missing"]] == ["dead letters", "workflows"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("lane=store", ["stored"]),
        ("lane=broker", ["letter-of-acme", "of-acme"]),
        ("lane=workflow", []),
        ("task=report", ["letter-of-acme", "of-acme"]),
        ("error=OSError", ["of-acme"]),
        ("queue=elsewhere", []),
        ("job_id=letter-of-acme", ["letter-of-acme"]),
        ("job_id=letter-of-other", []),
        ("since=2026-09-21T14:13:20.010Z", ["letter-of-acme", "of-acme"]),
        ("until=2026-09-21T14:13:20.010Z", ["stored"]),
        ("max_age=60", ["letter-of-acme", "of-acme", "stored"]),
    ],
)
def test_failures_are_filtered_in_all_sources(failed_site: Site, query: str, wanted: list[str]) -> None:
    assert _ids(failed_site, f"?{query}") == wanted


def test_pages_of_failures_continue_after_the_previous_one(failed_site: Site) -> None:
    found: list[str] = []
    cursor = ""
    while True:
        answer = failed_site("GET", f"/failures?limit=1&cursor={cursor}", by="all-operator").json()
        found += [one["job_id"] for one in answer["items"]]
        if (cursor := answer["next"]) is None:
            break

    assert found == _ids(failed_site, by="all-operator")
    assert len(found) == 6


@pytest.mark.parametrize("query", ["cursor=17", "lane=none", "max_age=-1", "since=soon"])
def test_unsupported_filters_of_failures_are_refused(failed_site: Site, query: str) -> None:
    assert failed_site("GET", f"/failures?{query}").status_code == 400
