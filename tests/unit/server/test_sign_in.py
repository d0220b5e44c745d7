"""Signing in to a server with the accounts of its store."""

import asyncio
import functools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from tests.unit.app_kit import new_file_store, new_url
from tests.unit.server.kit import build_served as served_by
from tests.unit.server.kit import define

_PASSWORD = "correct horse battery"


class _Served:
    def __init__(self, client: "TestClient[Any]") -> None:
        self.client = client

    def __call__(self, method: str, path: str, json: Any = None, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.request(method, f"/api/v1{path}", json=json, headers=named)

    def log_in(self) -> dict[str, Any]:
        answer = self("POST", "/auth/login", {"username": "root", "password": _PASSWORD})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def served_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Served]:
    # A test needs no expensive hash.
    cheap = functools.partial(PasswordHasher, time_cost=1, memory_cost=64)
    monkeypatch.setattr("taskmq.server.sign_in.PasswordHasher", cheap)
    app = TaskMQ(new_url(), store=new_file_store(tmp_path))
    define(app)

    async def add_admin() -> None:
        async with app:
            administration = IdentityAdministration(app.sessions.store().identity, hasher=cheap())
            await administration.add_first_admin("root", _PASSWORD, by=Actor(user="setup"))

    asyncio.run(add_admin())
    with TestClient(served_by(app), raise_server_exceptions=False) as client:
        yield _Served(client)


def test_a_login_returns_a_bearer_token_and_a_cookie_that_end_with_the_logout(served_site: _Served) -> None:
    begun = served_site.log_in()
    bearer = f"Bearer {begun['token']}"

    by_cookie = served_site("GET", "/auth/me")
    served_site.client.cookies.clear()
    by_bearer = served_site("GET", "/auth/me", authorization=bearer)
    by_nothing = served_site("GET", "/auth/me")

    assert (by_cookie.json()["user"], by_bearer.json()["user"]) == ("root", "root")
    assert (by_nothing.status_code, by_nothing.headers["www-authenticate"]) == (401, "Bearer")
    assert served_site("POST", "/auth/logout", authorization=bearer).json() == {"status": "logged_out"}
    assert served_site("GET", "/auth/me", authorization=bearer).status_code == 401


def test_scripts_cannot_read_the_cookie_and_its_changes_need_a_csrf_token(served_site: _Served) -> None:
    answer = served_site("POST", "/auth/login", {"username": "root", "password": _PASSWORD})
    cookie, csrf = answer.headers["set-cookie"], answer.json()["csrf_token"]
    body = {"job_type": "data_processing"}

    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert served_site("POST", "/jobs", body).json()["code"] == "csrf_token_missing"
    assert served_site("POST", "/jobs", body, x_csrf_token="another").status_code == 403
    assert served_site("POST", "/jobs", body, x_csrf_token=csrf).status_code == 201


@pytest.mark.parametrize(
    "body", [{"username": "root", "password": "wrong"}, {"username": "nobody", "password": _PASSWORD}]
)
def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(served_site: _Served, body: dict[str, str]) -> None:
    answer = served_site("POST", "/auth/login", body)

    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
    assert answer.json()["detail"] == "the name or the password is wrong, or the account is disabled"
    assert "set-cookie" not in answer.headers


def test_repeated_failed_logins_have_to_wait(served_site: _Served) -> None:
    answers = [served_site("POST", "/auth/login", {"username": "root", "password": "wrong"}) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_wrong_passwords_do_not_lock_out_users_signed_in_from_the_same_address(served_site: _Served) -> None:
    served_site.log_in()
    wrong = [
        served_site("POST", "/auth/login", {"username": f"user-{number}", "password": "wrong"}).status_code
        for number in range(55)
    ]

    assert (wrong[0], wrong[-1]) == (401, 429)
    assert served_site("POST", "/auth/login", {"username": "somebody", "password": "wrong"}).status_code == 429
    served_site.log_in()


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", None],
)
@pytest.mark.parametrize("path", ["/auth/login", "/auth/authorize", "/jobs", "/bulk", "/tokens", "/events?source=x"])
def test_a_body_that_a_foreign_form_can_send_is_refused(served_site: _Served, kind: str | None, path: str) -> None:
    """A form sends text/plain with a name that is JSON up to the password's equals sign; its value is the rest."""
    csrf = served_site.log_in()["csrf_token"]
    cookie = served_site.client.cookies.get("taskmq")
    headers = {"X-CSRF-Token": csrf} | ({} if kind is None else {"Content-Type": kind})
    body = b'{"username": "root", "password": "correct horse battery"}\r\n'

    answer = served_site.client.post(f"/api/v1{path}", content=body, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert served_site.client.cookies.get("taskmq") == cookie


def test_a_json_body_in_any_charset_and_an_empty_body_are_accepted(served_site: _Served) -> None:
    body = {"Content-Type": "Application/JSON; charset=utf-8"}
    content = f'{{"username": "root", "password": "{_PASSWORD}"}}'.encode()
    begun = served_site.client.post("/api/v1/auth/login", content=content, headers=body)
    headers = {"Authorization": f"Bearer {begun.json()['token']}", "Content-Type": "text/plain"}

    assert begun.status_code == 200
    assert served_site.client.post("/api/v1/auth/logout", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "https://jobs.example.com"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": "http://testserver.local"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://testserver.local"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "http://testserver.local:81"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_a_page_of_another_site_cannot_sign_in_a_user(
    served_site: _Served, headers: dict[str, str], status: int
) -> None:
    body = {"username": "root", "password": _PASSWORD}
    for path in ("/api/v1/auth/login", "/auth/login"):
        answer = served_site.client.post(path, json=body, headers=headers)

        assert answer.status_code == status, answer.text
        assert ("set-cookie" in answer.headers) == (status == 200)


def test_a_session_planted_before_the_login_ends_with_it(served_site: _Served) -> None:
    planted = served_site.log_in()["token"]
    # The browser of another user has the cookie, set by a foreign page or a machine nearby.
    begun = served_site.log_in()["token"]

    assert begun != planted
    assert served_site("GET", "/auth/me", authorization=f"Bearer {planted}").status_code == 401
    assert served_site("GET", "/auth/me", authorization=f"Bearer {begun}").status_code == 200
    served_site.client.cookies.set("taskmq", "made-up-by-the-page")
    assert served_site.log_in()["token"] != "made-up-by-the-page"


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "session", "taskmq", "csrf_token"])
def test_a_credential_in_an_address_is_ignored(served_site: _Served, name: str) -> None:
    secret = served_site.log_in()["token"]
    served_site.client.cookies.clear()

    assert served_site("GET", f"/auth/me?{name}={secret}").status_code == 401
    assert served_site("POST", f"/jobs?{name}={secret}", {"job_type": "report"}).status_code == 401


def test_only_the_secrets_of_two_cookies_of_one_name_count(served_site: _Served) -> None:
    secret = served_site.log_in()["token"]
    served_site.client.cookies.clear()
    for cookie in (f"taskmq=tossed; taskmq={secret}", f"taskmq={secret}; taskmq=tossed"):
        seen = served_site("GET", "/auth/me", cookie=cookie)
        changed = served_site("POST", "/jobs", {"job_type": "report"}, cookie=cookie)

        assert seen.status_code == 401 or seen.json()["user"] == "root"
        assert changed.status_code in {401, 403}


def test_the_document_signs_in_and_calls_and_signs_out(served_site: _Served) -> None:
    begun = served_site.client.post("/auth/login", json={"username": "root", "password": _PASSWORD}).json()
    served_site.client.cookies.clear()
    asked = {"token": begun["token"], "action": "jobs.read", "resource": "acme"}

    allowed = served_site.client.post("/auth/authorize", json=asked)
    ended = served_site.client.post("/auth/logout", headers={"Authorization": f"Bearer {begun['token']}"})

    assert allowed.json() == {"allowed": True}
    assert ended.json() == {"status": "logged_out"}
    assert served_site.client.post("/auth/authorize", json=asked).status_code == 401


def test_a_token_works_within_its_scopes_until_it_is_revoked(served_site: _Served) -> None:
    bearer = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()
    asked = {"name": "importer", "scopes": ["jobs.submit"], "tasks": ["billing.*"]}

    made = served_site("POST", "/tokens", asked, authorization=bearer).json()
    token = f"Bearer {made['secret']}"

    job = {"job_type": "billing.charge", "payload": {"amount": 1}}
    assert made["secret"].startswith("tmq_")
    assert served_site("POST", "/jobs", job, authorization=token).status_code == 201
    assert served_site("POST", "/jobs", {"job_type": "report"}, authorization=token).json()["code"] == "not_allowed"
    assert served_site("GET", "/jobs", authorization=token).status_code == 403
    assert served_site("POST", "/tokens", {"name": "another"}, authorization=token).status_code == 403
    (listed,) = served_site("GET", "/tokens", authorization=bearer).json()["items"]
    assert "secret" not in listed
    assert served_site("DELETE", f"/tokens/{made['id']}", authorization=bearer).json() == {"status": "revoked"}
    assert served_site("POST", "/jobs", job, authorization=token).status_code == 401


def test_users_tenants_and_roles_are_administered_and_audited(served_site: _Served) -> None:
    bearer = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()

    def ask(method: str, path: str, json: Any = None) -> Response:
        return served_site(method, path, json, authorization=bearer)

    tenant = ask("POST", "/tenants", {"name": "acme"})
    user = ask("POST", "/users", {"name": "ann", "memberships": [{"tenant": "acme", "role": "viewer"}]})
    user_id = user.json()["id"]
    stale = served_site("PATCH", f"/users/{user_id}", {"email": "a@b"}, authorization=bearer, if_match='"9"')

    assert (tenant.status_code, user.status_code, stale.status_code) == (201, 201, 412)
    assert (stale.json()["code"], stale.json()["version"]) == ("version_mismatch", user.json()["version"])
    assert ask("POST", "/users", {"name": "ANN"}).json()["code"] == "identity_conflict"
    assert ask("PUT", f"/users/{user_id}/roles/acme", {"role": "admin", "groups": [" a"]}).status_code == 400
    assert ask("PUT", f"/users/{user_id}/roles/acme", {"role": "admin", "groups": ["finance"]}).status_code == 200
    assert ask("GET", f"/users/{user_id}").json()["memberships"] == [
        {"tenant": "acme", "role": "admin", "tasks": ["*"], "groups": ["finance"]}
    ]
    assert {member["user"] for member in ask("GET", "/members").json()["items"]} == {"root", "ann"}
    assert [one["name"] for one in ask("GET", "/tenants").json()["items"]] == ["acme"]
    assert ask("PATCH", "/tenants/acme", {"description": "ACME"}).json()["description"] == "ACME"
    assert ask("DELETE", f"/users/{user_id}/roles/acme").status_code == 200
    assert ask("PATCH", f"/users/{user_id}", {"is_disabled": True}).json()["disabled"] is not None
    assert ask("DELETE", f"/users/{user_id}").json() == {"status": "erased"}
    assert ask("GET", f"/users/{user_id}").status_code == 404
    assert ask("DELETE", "/tenants/acme").status_code == 200
    assert [one["name"] for one in ask("GET", "/users").json()["items"]] == ["root"]
    entries = ask("GET", "/audit?limit=200").json()["items"]
    assert {"tenant.add", "user.add"} <= {entry["action"] for entry in entries}


def test_changing_a_password_requires_the_current_one_and_refuses_a_bad_one(served_site: _Served) -> None:
    bearer = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()

    def change(before: str, after: str) -> Response:
        return served_site("POST", "/auth/password", {"before": before, "after": after}, authorization=bearer)

    assert change("wrong", "another long sentence").json()["errors"][0]["field"] == "before"
    assert change(_PASSWORD, "short").json()["errors"][0]["field"] == "after"
    changed = change(_PASSWORD, "another long sentence").json()
    assert changed == {"status": "updated", "sessions_ended": 0, "tokens_revoked": 0, "tokens_left": 0}
    assert served_site("POST", "/auth/login", {"username": "root", "password": _PASSWORD}).status_code == 401


def test_an_unknown_authorization_scheme_is_ignored(served_site: _Served) -> None:
    for header in ("Basic cm9vdDpyb290", "Bearer", "Bearer tmq_no", "Bearer " + "x" * 600):
        assert served_site("GET", "/jobs", authorization=header).status_code == 401


def test_an_admin_of_a_tenant_grants_roles_only_within_the_tenant(served_site: _Served) -> None:
    begun = served_site.log_in()
    served_site.client.cookies.clear()
    root = f"Bearer {begun['token']}"

    def ask(method: str, path: str, json: Any = None, *, by: str = root) -> Response:
        return served_site(method, path, json, authorization=by)

    for tenant in ("acme", "other"):
        ask("POST", "/tenants", {"name": tenant})
    roles = [{"tenant": "acme", "role": "admin"}]
    ask("POST", "/users", {"name": "ann", "memberships": roles, "password": "ostrich lamp violet"})
    bob = ask("POST", "/users", {"name": "bob"}).json()["id"]
    ann = served_site("POST", "/auth/login", {"username": "ann", "password": "ostrich lamp violet"})
    served_site.client.cookies.clear()
    by = f"Bearer {ann.json()['token']}"

    strange = ask("PUT", "/members/bob", {"role": "operator"}, by=by)
    ask("PUT", f"/users/{bob}/roles/other", {"role": "admin"})
    foreign = ask("PUT", "/members/bob", {"role": "operator"}, by=by)
    ask("PUT", f"/users/{bob}/roles/acme", {"role": "viewer"})
    given = ask("PUT", "/members/bob", {"role": "operator", "tasks": ["billing.*"]}, by=by)
    elsewhere = ask("PUT", "/members/bob?tenant=other", {"role": "viewer"}, by=by)
    everywhere = ask("PUT", "/members/bob?tenant=*", {"role": "viewer"}, by=by)
    unknown = ask("PUT", "/members/nobody", {"role": "viewer"}, by=by)
    unnamed = ask("PUT", "/members/bob", {"role": "viewer"})

    assert (given.status_code, given.json()) == (200, {"status": "updated"})
    assert [elsewhere.json()["code"], everywhere.json()["code"]] == ["tenant_not_found"] * 2
    said = [{**answer.json(), "request_id": ""} for answer in (unknown, strange, foreign)]
    said[0]["detail"] = said[0]["detail"].replace("nobody", "bob")
    assert unknown.json()["code"] == "identity_not_found"
    assert said[1:] == [said[0]] * 2
    assert unnamed.json()["code"] == "tenant_missing"
    members = ask("GET", "/members", by=by).json()["items"]
    assert [(one["user"], one["role"], one["tasks"]) for one in members] == [
        ("ann", "admin", ["*"]),
        ("bob", "operator", ["billing.*"]),
    ]
    assert ask("PUT", "/members/ann", {"role": "admin", "tasks": ["mail.*"]}).json()["code"] == "tenant_missing"
    assert ask("PUT", "/members/ann?tenant=acme", {"role": "admin", "tasks": ["mail.*"]}).status_code == 200
    assert ask("PUT", "/members/ann", {"role": "admin"}, by=by).json()["code"] == "not_allowed"
    for change in (("DELETE", None), ("PUT", {"role": "viewer", "tasks": ["mail.*"]})):
        assert ask(change[0], "/members/bob", change[1], by=by).json()["code"] == "not_allowed"
    ask("PUT", "/members/bob?tenant=acme", {"role": "operator", "tasks": ["mail.*"]})
    assert ask("DELETE", "/members/bob", by=by).json() == {"status": "removed"}
    assert ask("DELETE", "/members/bob", by=by).json()["code"] == "identity_not_found"
    # Their last role in a tenant: from now on they are unknown there again.
    again = ask("PUT", "/members/bob", {"role": "viewer", "tasks": ["mail.*"]}, by=by)
    assert again.json()["code"] == "identity_not_found"
    assert ask("PUT", "/members/bob?tenant=acme", {"role": "viewer"}).json() == {"status": "updated"}
    entries = ask("GET", "/audit", by=by).json()["items"]
    assert [(entry["user"], entry["tenant"]) for entry in entries][:2] == [("root", "acme"), ("ann", "acme")]


def test_an_admin_of_two_tenants_grants_members_of_one_a_role_in_the_other(served_site: _Served) -> None:
    root = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()

    def ask(method: str, path: str, json: Any = None, *, by: str = root) -> Response:
        return served_site(method, path, json, authorization=by)

    for tenant in ("acme", "other", "third"):
        ask("POST", "/tenants", {"name": tenant})
    roles = [{"tenant": "acme", "role": "admin"}, {"tenant": "other", "role": "admin"}]
    ask("POST", "/users", {"name": "ann", "memberships": [*roles, {"tenant": "third", "role": "viewer"}],
                           "password": "ostrich lamp violet"})  # fmt: skip
    ask("POST", "/users", {"name": "bob", "memberships": [{"tenant": "acme", "role": "viewer"}]})
    ask("POST", "/users", {"name": "cyd", "memberships": [{"tenant": "third", "role": "viewer"}]})
    by = served_site("POST", "/auth/login", {"username": "ann", "password": "ostrich lamp violet"}).json()["token"]
    served_site.client.cookies.clear()

    def give(user: str) -> Response:
        return ask("PUT", f"/members/{user}?tenant=other", {"role": "operator"}, by=f"Bearer {by}")

    assert give("bob").json() == {"status": "updated"}
    # Only admins see the members.
    assert give("cyd").json()["code"] == "identity_not_found"


def test_a_reloaded_page_gets_its_csrf_token_and_its_permissions(served_site: _Served) -> None:
    begun = served_site.log_in()

    by_cookie = served_site("GET", "/auth/me").json()
    served_site.client.cookies.clear()
    by_bearer = served_site("GET", "/auth/me", authorization=f"Bearer {begun['token']}").json()

    assert by_cookie["csrf_token"] == begun["csrf_token"]
    assert by_bearer["csrf_token"] is None
    assert {"jobs.read", "queues.purge", "account.change"} <= set(by_cookie["permissions"])


def test_a_password_changes_with_the_other_fields_for_the_seen_version_or_not_at_all(served_site: _Served) -> None:
    bearer = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()
    made = served_site("POST", "/users", {"name": "ann", "password": "another long one"}, authorization=bearer).json()
    path = f"/users/{made['id']}"

    def change_password(version: int, password: str) -> int:
        body = {"password": password, "email": "ann@example.org"}
        return served_site("PATCH", path, body, authorization=bearer, if_match=f'"{version}"').status_code

    def signs_in(password: str) -> bool:
        return served_site("POST", "/auth/login", {"username": "ann", "password": password}).status_code == 200

    assert change_password(made["version"] + 7, "of somebody who was late") == 412
    assert signs_in("another long one")
    assert (
        change_password(served_site("GET", path, authorization=bearer).json()["version"], "the newest of them all")
        == 200
    )
    assert served_site("GET", path, authorization=bearer).json()["email"] == "ann@example.org"
    assert (signs_in("another long one"), signs_in("the newest of them all")) == (False, True)


def test_sessions_and_tokens_are_listed_and_ended_by_their_user_and_by_admins(served_site: _Served) -> None:
    bearers: list[str] = []
    for _ in range(2):
        bearers.append(f"Bearer {served_site.log_in()['token']}")
        # Otherwise the second login would end the session of the first.
        served_site.client.cookies.clear()
    first, second = bearers

    sessions = served_site("GET", "/sessions", authorization=second).json()["items"]
    (other,) = [one for one in sessions if not one["is_own"]]
    me = served_site("GET", "/auth/me", authorization=second).json()
    token = served_site("POST", "/tokens", {"name": "ci"}, authorization=second).json()

    assert len(sessions) == 2
    assert served_site("DELETE", f"/sessions/{other['id']}", authorization=second).json() == {"status": "ended"}
    assert served_site("GET", "/auth/me", authorization=first).status_code == 401
    assert served_site("DELETE", f"/sessions/{other['id']}", authorization=second).status_code == 404
    path = f"/users/{me['user_id']}"
    assert [one["id"] for one in served_site("GET", f"{path}/tokens", authorization=second).json()["items"]] == [
        token["id"]
    ]
    assert served_site("DELETE", f"{path}/tokens/{token['id']}", authorization=second).json() == {"status": "revoked"}
    (own,) = served_site("GET", f"{path}/sessions", authorization=second).json()["items"]
    assert served_site("DELETE", f"{path}/sessions/{own['id']}", authorization=second).status_code == 200
    assert served_site("GET", "/auth/me", authorization=second).status_code == 401


def _older(tmp_path: Path, seconds: int) -> None:
    """Move the start of all sessions that far into the past."""
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("update session set created = created - ?", (seconds * 1000,))


def test_creating_a_token_requires_the_password_or_a_recent_sign_in(served_site: _Served, tmp_path: Path) -> None:
    by = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()

    def add(name: str, **more: Any) -> Response:
        return served_site("POST", "/tokens", {"name": name, **more}, authorization=by)

    assert add("fresh").status_code == 201
    _older(tmp_path, 300)
    stale = add("stale")
    assert (stale.status_code, stale.json()["code"]) == (403, "confirmation_needed")
    assert add("wrong", password="wrong password").json()["errors"][0]["field"] == "password"
    assert add("confirmed", password=_PASSWORD).status_code == 201
    names = [one["name"] for one in served_site("GET", "/tokens", authorization=by).json()["items"]]
    assert sorted(names) == ["confirmed", "fresh"]


def test_a_stolen_session_leaves_no_token_behind_a_new_password(served_site: _Served, tmp_path: Path) -> None:
    stolen = f"Bearer {served_site.log_in()['token']}"
    # Another browser, whose sign-in ends no session.
    served_site.client.cookies.clear()
    own = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()
    token = served_site("POST", "/tokens", {"name": "wide"}, authorization=own).json()["secret"]
    _older(tmp_path, 300)

    assert served_site("POST", "/tokens", {"name": "thief"}, authorization=stolen).status_code == 403
    body = {"before": _PASSWORD, "after": "another long sentence", "revoke_tokens": True}
    changed = served_site("POST", "/auth/password", body, authorization=own).json()

    assert changed == {"status": "updated", "sessions_ended": 1, "tokens_revoked": 1, "tokens_left": 0}
    for credential in (stolen, f"Bearer {token}"):
        assert served_site("GET", "/auth/me", authorization=credential).status_code == 401


def test_a_reset_by_an_admin_revokes_tokens_unless_they_are_to_be_kept(served_site: _Served) -> None:
    root = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()
    roles = [{"tenant": "*", "role": "viewer"}]
    user = served_site("POST", "/users", {"name": "ann", "memberships": roles, "password": "ostrich lamp violet"},
                  authorization=root).json()  # fmt: skip

    def token_of(password: str) -> str:
        begun = served_site("POST", "/auth/login", {"username": "ann", "password": password}).json()
        served_site.client.cookies.clear()
        made = served_site("POST", "/tokens", {"name": "ci"}, authorization=f"Bearer {begun['token']}").json()
        return f"Bearer {made['secret']}"

    def reset(**body: Any) -> tuple[int, ...]:
        found = served_site("PATCH", f"/users/{user['id']}", body, authorization=root).json()
        return found["sessions_ended"], found["tokens_revoked"], found["tokens_left"]

    token = token_of("ostrich lamp violet")
    assert reset(email="ann@example.org") == (0, 0, 0)
    assert reset(password="seven green bicycles", keep_tokens=True) == (1, 0, 1)
    assert served_site("GET", "/jobs", authorization=token).status_code == 200
    assert reset(password="eight yellow kayaks") == (0, 1, 0)
    assert served_site("GET", "/jobs", authorization=token).status_code == 401


def test_a_session_that_guesses_the_password_ends_with_the_fifth_guess(served_site: _Served) -> None:
    stolen = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()

    def guess(number: int) -> int:
        body = {"before": f"wrong password {number}", "after": "another long sentence"}
        return served_site("POST", "/auth/password", body, authorization=stolen).status_code

    assert [guess(number) for number in range(5)] == [400] * 5
    assert guess(5) == 401


def test_the_number_of_tokens_is_limited_and_the_typed_error_has_a_remedy(served_site: _Served) -> None:
    by = f"Bearer {served_site.log_in()['token']}"
    served_site.client.cookies.clear()
    for number in range(100):
        assert served_site("POST", "/tokens", {"name": f"t{number}"}, authorization=by).status_code == 201

    refused = served_site("POST", "/tokens", {"name": "more"}, authorization=by)

    assert (refused.status_code, refused.json()["code"]) == (409, "limit_reached")
    assert "revoke those that no program uses" in refused.json()["detail"]
