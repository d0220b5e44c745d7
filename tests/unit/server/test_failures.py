"""Failures over HTTP: one list, its permissions, and the missing parts."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def _groups(site: Site, query: str = "", *, by: str = "acme-operator") -> dict[str, dict[str, Any]]:
    """Return the groups by their errors; they are of 2026, so the period has to begin then."""
    answer = site("GET", f"/failures/groups?since=2026-09-21T00:00:00Z{query}", by=by)
    assert answer.is_success, answer.text
    return {one["error"]: one for one in answer.json()["items"]}


def test_failures_are_grouped_by_tenant_task_and_error(failed_site: Site) -> None:
    own = _groups(failed_site)
    everybodys = failed_site("GET", "/failures/groups?since=2026-09-21T00:00:00Z&limit=1", by="all-viewer").json()

    assert {error: (one["task"], one["failures"], one["message"], one["is_new"]) for error, one in own.items()} == {
        "ValueError": ("data_processing", 1, "no\nand more", True),
        "OSError": ("report", 1, "full", True),
    }
    assert [sum(one["trend"]) for one in own.values()] == [1, 1]
    assert (len(everybodys["items"]), everybodys["open"], everybodys["is_complete"]) == (1, 4, True)
    assert failed_site("GET", "/failures/groups").json()["items"] == []


def test_a_resolved_group_is_open_again_after_its_next_failure(failed_site: Site) -> None:
    group = _groups(failed_site)["OSError"]["id"]

    assert failed_site("POST", f"/failures/groups/{group}/resolve", {"note": "more disk"}).is_success
    resolved = _groups(failed_site)["OSError"]
    with failed_site.client.portal() as portal:
        portal.call(_fail_again, failed_site)
    back = _groups(failed_site)["OSError"]

    assert (resolved["state"], resolved["is_back"], resolved["note"]) == ("resolved", False, "more disk")
    assert resolved["marked_by"] == "acme-admin"
    assert (back["state"], back["is_back"], back["failures"]) == ("open", True, 2)
    assert _groups(failed_site, "&state=open", by="other-admin")["OSError"]["state"] == "open"


async def _fail_again(site: Site) -> None:
    store = site.app.sessions.store()
    at = await store.now_ms() + 60_000
    report = RunFailure(at=at, job="again", event="dead", task="report", queue="work", tenant="acme", error="OSError")
    await history_of(store).rollups.add([], [report])


def test_a_muted_group_is_not_open_until_it_is_reopened_and_all_is_audited(failed_site: Site) -> None:
    group = _groups(failed_site)["ValueError"]["id"]

    assert failed_site("POST", f"/failures/groups/{group}/mute", {"seconds": 3600}).is_success
    muted = _groups(failed_site, "&state=muted")["ValueError"]
    assert failed_site("POST", f"/failures/groups/{group}/mute", {}).is_success
    forever = _groups(failed_site)["ValueError"]
    counted = failed_site("GET", "/failures/groups?since=2026-09-21T00:00:00Z").json()
    assert failed_site("POST", f"/failures/groups/{group}/reopen", {"note": "look"}).is_success

    assert muted["until"] > muted["marked_at"]
    assert (forever["state"], forever["until"]) == ("muted", None)
    assert (counted["open"], counted["resolved"], counted["muted"]) == (1, 0, 1)
    assert _groups(failed_site)["ValueError"]["state"] == "open"
    entries = failed_site("GET", "/audit", by="acme-admin").json()["items"]
    assert [(one["action"], one["subject"]) for one in entries] == [
        ("failures.reopen", group), ("failures.mute", group), ("failures.mute", group)
    ]  # fmt: skip
    assert entries[-1]["after"] == {"task": "data_processing", "error": "ValueError", "seconds": 3600.0}


def test_a_group_has_the_version_in_which_it_first_failed(failed_site: Site) -> None:
    async def fail() -> None:
        async with failed_site.app:
            history = history_of(failed_site.app.sessions.store())
            await history.versions.report([("a1", "1.41")], at=_AT - 60_000)
            await history.versions.report([("a2", "1.42"), ("a1", "1.43")], at=_AT + 40_000)
            failures = [
                RunFailure(
                    at=_AT + at, job="j", event="dead", task="report", queue="work", tenant="acme", worker=worker,
                    error="TimeoutError",
                )
                for at, worker in ((50_000, "a2"), (45_000, "a2"), (60_000, "a1"))
            ]  # fmt: skip
            await history.rollups.add([], failures)

    asyncio.run(fail())

    assert {error: one["first_version"] for error, one in _groups(failed_site).items()} == {
        "TimeoutError": "1.42",
        "OSError": "",
        "ValueError": "",
    }


def test_groups_are_changed_by_operators_of_their_tenant_and_task_only(failed_site: Site) -> None:
    group = _groups(failed_site)["ValueError"]["id"]

    def resolve(by: str, group: str = group) -> int:
        return failed_site("POST", f"/failures/groups/{group}/resolve", {}, by=by).status_code

    assert [resolve(by) for by in ("acme-submitter", "other-admin", "picky")] == [403, 404, 403]
    assert resolve("acme-operator", "absent") == 404
    assert resolve("all-operator") == 200
