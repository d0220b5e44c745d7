"""Permissions: every handler declares one, and foreign tenants' objects do not exist."""

from pathlib import Path
from typing import Any

import pytest
from litestar import get

from taskmq.model.identity import RULES, Identity, Level, Permission, Role, may
from taskmq.server import ServerSettings
from taskmq.server.access import PUBLIC, permission_of
from taskmq.server.application import HANDLERS
from tests.unit.server.kit import CALLERS, WHOLE, Site, ask_all, open_site

_PUBLIC = {
    "beginOidcLogin",
    "endOidcLogin",
    "getDashboard",
    "getDashboardFile",
    "getHealth",
    "getLiveness",
    "getReadiness",
    "getApiPage",
    "getOpenApi",
    "logIn",
    "logInCompat",
    "authorize",
    "authorizeCompat",
}
# Values for the path parameters.
_VALUES = {
    "job_id": "order-17",
    "name": "work",
    "queue": "work",
    "workflow_id": "w1",
    "run_id": "r1",
    "step": "extract",
    "user_id": "u1",
    "user": "ann",
    "role_tenant": "acme",
    "token_id": "t1",
    "session_id": "s1",
    "silence_id": "s1",
    "bulk_id": "b1",
    "group_id": "g1",
}


def _calls() -> list[tuple[str, str, str, Permission]]:
    """Return each call with a permission: its name, method, path and permission."""
    found = []
    for handler in HANDLERS:
        permission = permission_of(handler)
        if permission is None:
            continue
        path = next(iter(handler.paths))
        for name, value in _VALUES.items():
            path = path.replace(f"{{{name}:str}}", value)
        assert "{" not in path, path
        # There are no workers that could answer.
        path += "?within=0.01" if "within" in handler.opt["query"] else ""
        method = next(str(method) for method in handler.http_methods if str(method) != "HEAD")
        found.append((str(handler.operation_id), method, path, permission))
    return found


def test_every_handler_declares_its_permission_and_few_are_public() -> None:
    public = {handler.operation_id for handler in HANDLERS if permission_of(handler) is None}

    assert public == _PUBLIC
    assert all(handler.opt["permission"] in {PUBLIC, *Permission} for handler in HANDLERS)


def test_a_handler_without_a_permission_is_found() -> None:
    @get("/x")
    async def handler() -> None: ...

    with pytest.raises(ValueError, match="declares no permission"):
        permission_of(handler)


def test_only_health_and_the_description_are_served_without_an_identity(site: Site) -> None:
    for name, method, path, _ in _calls():
        answer = site(method, path, by=None)

        assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in"), name
        assert answer.headers["www-authenticate"] == "Bearer"
    assert site("GET", "/health/live", by=None).json() == {"status": "live", "store": None}
    assert site("GET", "/health/ready", by=None).status_code == 200
    assert site("GET", "/api/openapi.json", by=None).status_code == 200


def test_each_call_is_refused_exactly_to_callers_without_permission(site: Site) -> None:
    # So that streams end.
    site.hub.close()
    plan = [
        (name, caller, _is_allowed(identity, permission), _request(method, path, caller))
        for name, method, path, permission in _calls()
        for caller, identity in CALLERS.items()
    ]

    for (name, caller, is_allowed, _), answer in zip(
        plan, ask_all(site.client, (row[-1] for row in plan)), strict=True
    ):
        assert (answer.status_code == 403) is not is_allowed, (name, caller, answer.text)


def _is_allowed(identity: Identity, permission: Permission) -> bool:
    is_for_tenants = RULES[permission].level is Level.TENANT
    tenants = [None, *(membership.tenant for membership in identity.memberships if is_for_tenants)]
    return any(may(identity, permission, tenant) for tenant in tenants)


def _request(method: str, path: str, caller: str) -> dict[str, Any]:
    body = {"unreadable": True} if method in {"POST", "PUT", "PATCH"} else None
    where = path if path.startswith(WHOLE) else f"/api/v1{path}"
    return {"method": method, "url": where, "headers": {"Authorization": f"Bearer {caller}"}, "json": body}


def test_jobs_of_another_tenant_are_not_found(site: Site) -> None:
    site.submit()
    store_id = site("GET", "/jobs/order-17").json()["id"]

    for name, method, path, permission in _calls():
        if "/jobs/order-17" in path:
            for job in ("order-17", store_id, "@acme:order-17"):
                body: Any = {} if method in {"POST", "PUT", "PATCH"} else None
                # The only one of these calls whose body has a required field.
                body = {"signal": "approval"} if name == "signalJob" else body
                answer = site(method, path.replace("order-17", job), body, by="other-admin")

                assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found"), (name, job, permission)
    assert site.ids(by="other-admin") == []
    assert site.ids("?filter=tenant:acme", by="other-admin") == []
    assert site("GET", "/jobs/count?filter=tenant:acme", by="other-admin").json()["count"] == 0
    assert site("GET", "/jobs/order-17").json()["version"] == 1


def test_two_tenants_may_have_jobs_with_the_same_id(site: Site) -> None:
    mine = site("POST", "/jobs", {"job_type": "data_processing", "job_id": "one", "held": True})
    theirs = site("POST", "/jobs", {"job_type": "data_processing", "job_id": "one", "held": True}, by="other-admin")

    assert (mine.status_code, theirs.status_code) == (201, 201)
    site("DELETE", "/jobs/one")
    assert site("GET", "/jobs/one", by="other-admin").json()["state"] == "held"
    assert {job["tenant"] for job in site("GET", "/jobs", by="all-viewer").json()} == {"acme", "other"}
    assert site.ids(by="all-viewer") == ["@other:one", "@acme:one"]
    assert site.ids("?tenant=acme", by="all-viewer") == ["one"]


def test_a_foreign_tenant_does_not_exist_and_one_of_several_must_be_named(site: Site) -> None:
    foreign = site("GET", "/jobs?tenant=other")
    unnamed = site("GET", "/jobs", by="both")
    too_weak = site("POST", "/jobs?tenant=other", {"job_type": "data_processing"}, by="both")

    assert (foreign.status_code, foreign.json()["code"]) == (404, "tenant_not_found")
    assert (unnamed.status_code, unnamed.json()["code"]) == (400, "tenant_missing")
    assert "acme, other" in unnamed.json()["detail"]
    assert too_weak.status_code == 403
    assert site("GET", "/jobs?tenant=other", by="both").status_code == 200
    # There is only one tenant in which they have permission.
    assert site("POST", "/jobs", {"job_type": "data_processing"}, by="both").status_code == 201


def test_tenant_and_owner_come_from_the_identity_and_never_from_the_body(site: Site) -> None:
    for field in ("tenant", "owner"):
        refused = site("POST", "/jobs", {"job_type": "data_processing", field: "other"})
        assert refused.status_code == 400

    site.submit()

    found = site("GET", "/jobs/order-17").json()
    assert (found["tenant"], found["owner"]) == ("acme", "acme-admin")


def test_only_tasks_that_match_the_patterns_of_the_caller_can_be_called(site: Site) -> None:
    site.submit()

    refused = site("POST", "/jobs", {"job_type": "report"}, by="picky")
    many = site("POST", "/jobs", [{"job_type": "report"}, {"job_type": "billing.charge", "args": [1]}], by="picky")
    changes = [
        site("PATCH", "/jobs/order-17", {"payload": {}}, by="picky"),
        site("POST", "/jobs/order-17/clone", by="picky"),
        site("POST", "/jobs/order-17/retry", by="picky"),
        site("POST", "/jobs/order-17/release", by="picky"),
        site("POST", "/jobs/order-17/hold", by="picky"),
        site("DELETE", "/jobs/order-17", by="picky"),
    ]

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (many.json()["submitted"], many.json()["items"][0]["problem"]["code"]) == (1, "not_allowed")
    assert [answer.status_code for answer in changes] == [403] * 6


def test_schedules_of_the_app_are_shown_only_to_roles_on_the_instance(site: Site) -> None:
    assert [one["name"] for one in site("GET", "/schedules", by="all-viewer").json()["items"]] == ["nightly"]

    assert site("GET", "/schedules").json() == {"items": [], "next": None}
    assert site("GET", "/schedules/nightly").status_code == 404
    assert site("POST", "/schedules/nightly/run").status_code == 404


def test_a_read_only_server_changes_nothing(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(read_only=True)) as site:
        site.hub.close()
        for name, method, path, _ in _calls():
            answer = site(method, path, {} if method != "GET" else None, by="all-admin")

            is_change = method != "GET" and not name.startswith("logOut")
            assert ('"code":"read_only"' in answer.text) is is_change, (name, answer.text)


def test_the_matrix_covers_all_roles() -> None:
    assert {f"acme-{role}" for role in Role} | {f"all-{role}" for role in Role} <= set(CALLERS)
