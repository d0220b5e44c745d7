"""Signing in by a provider run by the tests: a small but real one with its own keys."""

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from litestar.testing import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor, UserChange
from taskmq.errors import InvalidSetting
from taskmq.model.identity import EVERYWHERE, Membership, Role
from taskmq.server import GroupRole, OidcProvider, OidcSettings
from taskmq.testing import FakeClock
from tests.unit.app_kit import new_file_store, new_url
from tests.unit.server.kit import build_served, define, open_site

_ISSUER = "https://login.example.com"
_CLIENT, _SECRET = "taskmq", "s3cr3t"
_SETTINGS = OidcSettings(
    issuer=_ISSUER,
    client_id=_CLIENT,
    client_secret=_SECRET,
    public_url="https://jobs.example.com",
    roles=(
        GroupRole("ops", "acme", Role.OPERATOR),
        GroupRole("all", "acme", Role.VIEWER),
        GroupRole("root", "*", Role.ADMIN),
    ),
)


@cache
def _build_key(name: str) -> rsa.RSAPrivateKey:
    """Return the key of that name, the same one for every test: a new one takes longer than most of them."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Provider:
    """A provider that signs in any visitor as configured."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"sub": "u-1", "preferred_username": "ann", "groups": ["ops", "all"]}
        self.changes: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.description: dict[str, Any] = {}
        self.is_down = False
        self.keys_text = ""
        self.asked: list[str] = []
        self.methods = ["client_secret_basic"]
        self._pending: dict[str, dict[str, str]] = {}
        self._keys: dict[str, Any] = {}
        self.rotate("k1")
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._jwks),
            ]
        )

    def rotate(self, name: str) -> None:
        """Sign with another key from now on; the previous one is gone."""
        self._keys = {name: _build_key(name)}

    def sign(self, claims: dict[str, Any], *, key: Any = None, algorithm: str = "RS256") -> str:
        ((name, own),) = self._keys.items()
        by: Any = None if algorithm == "none" else key or own
        return jwt.encode(claims, by, algorithm=algorithm, headers={"kid": name, **self.headers})

    async def _describe(self, request: Request) -> Response:
        self.asked.append("description")
        if self.is_down:
            return Response(status_code=503)
        return JSONResponse(
            {
                "issuer": _ISSUER,
                "authorization_endpoint": f"{_ISSUER}/authorize",
                "token_endpoint": f"{_ISSUER}/token",
                "jwks_uri": f"{_ISSUER}/keys",
                "token_endpoint_auth_methods_supported": self.methods,
                **self.description,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._pending[code] = query
        answer = httpx.QueryParams(state=query["state"], code=code, iss=_ISSUER, session_state="x", hd="example.com")
        return RedirectResponse(f"{query['redirect_uri']}?{answer}")

    async def _token(self, request: Request) -> Response:
        form = {name: value for name, (value,) in parse_qs((await request.body()).decode()).items()}
        if self.methods == ["client_secret_basic"]:
            basic = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
            assert basic == f"{_CLIENT}:{_SECRET}"
        else:
            assert (form["client_id"], form["client_secret"]) == (_CLIENT, _SECRET)
        # A code is valid once.
        query = self._pending.pop(form["code"], None)
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        if query is None or query["code_challenge"] != base64.urlsafe_b64encode(challenge).rstrip(b"=").decode():
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        assert form["redirect_uri"] == query["redirect_uri"]
        now = int(time.time())
        claims = {"iss": _ISSUER, "aud": _CLIENT, "iat": now, "exp": now + 300, "nonce": query["nonce"]}
        return JSONResponse(
            {"id_token": self.sign({**claims, **self.claims, **self.changes}), "token_type": "Bearer"}
        )

    async def _jwks(self, request: Request) -> Response:
        self.asked.append("keys")
        if self.keys_text:
            return Response(self.keys_text)
        keys = [
            {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
            for name, key in self._keys.items()
        ]
        return JSONResponse({"keys": keys})


class _Site:
    """A server with a provider, and a browser."""

    def __init__(self, browser: "TestClient[Any]", provider: _Provider, clock: FakeClock, app: TaskMQ) -> None:
        self.browser = browser
        self.provider = provider
        self.clock = clock
        self.app = app

    def begin(self, following: str = "") -> str:
        """Go to the sign-in; return the provider's address."""
        answer = self.browser.get(f"/api/v1/auth/oidc/login?next={following}", follow_redirects=False)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def at_provider(self, where: str) -> str:
        """Sign in there; return the address of the redirect below this server."""

        async def go() -> str:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.provider.app)) as client:
                return str((await client.get(where)).headers["location"])

        back = urlsplit(asyncio.run(go()))
        assert f"{back.scheme}://{back.netloc}" == _SETTINGS.public_url
        return f"{back.path}?{back.query}"

    def end(self, where: str) -> httpx.Response:
        return self.browser.get(where, follow_redirects=False)

    def sign_in(self, following: str = "") -> httpx.Response:
        return self.end(self.at_provider(self.begin(following)))

    def me(self) -> dict[str, Any]:
        found: dict[str, Any] = self.browser.get("/api/v1/auth/me").json()
        return found


@contextmanager
def _open(folder: Path, provider: _Provider) -> Iterator[_Site]:
    app = TaskMQ(new_url(), store=new_file_store(folder))
    define(app)

    async def prepare() -> None:
        async with app:
            administration = IdentityAdministration(
                app.sessions.store().identity, hasher=PasswordHasher(time_cost=1, memory_cost=64)
            )
            await administration.add_tenant("acme", by=Actor())

    asyncio.run(prepare())
    clock = FakeClock()
    http = httpx.AsyncClient(transport=httpx.ASGITransport(provider.app))
    edge = build_served(app, oidc=OidcProvider(_SETTINGS, clock=clock, http=http))
    with TestClient(edge, base_url=_SETTINGS.public_url, raise_server_exceptions=False) as browser:
        yield _Site(browser, provider, clock, app)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[_Site]:
    with _open(tmp_path, _Provider()) as opened:
        yield opened


def test_signing_in_at_the_provider_returns_a_session_with_the_roles_of_the_groups(site: _Site) -> None:
    answer = site.sign_in("/taskmq/jobs")

    assert (answer.status_code, answer.headers["location"]) == (303, "/taskmq/jobs")
    session = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("__Host-taskmq="))
    assert "HttpOnly" in session
    assert "Secure" in session
    assert "SameSite=strict" in session
    me = site.me()
    assert (me["user"], me["via"]) == ("ann", "session")
    (role,) = me["memberships"]
    assert (role["tenant"], role["role"], role["groups"]) == ("acme", "operator", ["ops", "all"])
    # The cookie of the redirect is gone.
    assert "__Host-taskmq-oidc" not in site.browser.cookies
    changed = site.browser.post("/api/v1/jobs?tenant=acme", json={"job_type": "report"})
    assert changed.json()["code"] == "csrf_token_missing"
    headers = {"x-csrf-token": me["csrf_token"]}
    assert site.browser.post("/api/v1/jobs?tenant=acme", json={"job_type": "report"}, headers=headers).is_success


def test_the_same_person_is_the_same_user_with_the_current_roles(site: _Site) -> None:
    site.sign_in()
    first = site.me()
    site.provider.claims |= {"preferred_username": "ann.married", "groups": ["root"]}
    site.sign_in()
    second = site.me()

    assert (second["user_id"], second["user"]) == (first["user_id"], "ann")
    assert [(one["tenant"], one["role"]) for one in second["memberships"]] == [(EVERYWHERE, "admin")]
    entries = site.browser.get("/api/v1/audit?kind=user").json()["items"]
    assert {entry["via"] for entry in entries} == {"oidc"}


def test_another_person_with_the_same_name_is_another_user(site: _Site) -> None:
    site.sign_in()
    first = site.me()
    site.provider.claims |= {"sub": "u-2"}
    site.browser.cookies.clear()

    # Taking a user's name before they arrive does not lock them out.
    assert site.sign_in().status_code == 303
    second = site.me()

    assert second["user_id"] != first["user_id"]
    assert second["user"] == f"oidc-{second['user_id'][:8]}"


def test_a_user_without_groups_loses_roles_and_the_permissions_of_tokens(site: _Site) -> None:
    site.sign_in()
    made = site.browser.post("/api/v1/tokens", json={"name": "ci"}, headers={"x-csrf-token": site.me()["csrf_token"]})
    bearer = {"authorization": f"Bearer {made.json()['secret']}"}
    assert site.browser.get("/api/v1/jobs?tenant=acme", headers=bearer).status_code == 200
    site.provider.claims |= {"groups": []}

    refused = site.sign_in()

    assert (refused.status_code, refused.json()["detail"]) == (403, "none of your groups has a role here")
    assert site.me()["memberships"] == []
    assert not site.browser.get("/api/v1/jobs?tenant=acme", headers=bearer).is_success


def test_the_last_admin_remains_one_even_without_groups(site: _Site) -> None:
    site.provider.claims |= {"groups": ["root"]}
    site.sign_in()
    site.provider.claims |= {"groups": []}

    assert site.sign_in().json()["detail"] == "none of your groups has a role here"
    assert [one["role"] for one in site.me()["memberships"]] == ["admin"]


@pytest.mark.parametrize(
    ("claim", "kept"), [({}, ""), ({"email_verified": "true"}, ""), ({"email_verified": True}, "eve")]
)
def test_only_a_verified_email_address_counts(claim: dict[str, Any], kept: str, site: _Site) -> None:
    site.provider.claims |= {"email": "eve@example.com", "preferred_username": "", "groups": ["root"], **claim}

    site.sign_in()

    (user,) = site.browser.get("/api/v1/users").json()["items"]
    assert (user["email"], user["name"].partition("@")[0] == "eve") == (
        f"{kept}@example.com" if kept else "",
        bool(kept),
    )


def test_a_user_without_a_group_with_a_role_is_refused(site: _Site) -> None:
    site.provider.claims |= {"groups": ["others"]}

    assert site.sign_in().json()["detail"] == "none of your groups has a role here"
    site.provider.claims |= {"groups": ["root"]}
    site.sign_in()
    assert len(site.browser.get("/api/v1/audit?action=user.add").json()["items"]) == 1


def test_a_disabled_user_is_refused(site: _Site) -> None:
    site.sign_in()
    user_id = site.me()["user_id"]

    async def disable() -> None:
        async with TaskMQ("memory://other", store=site.app.sessions.store_url) as other:
            accounts = other.sessions.store().identity.accounts
            await accounts.change_user(user_id, UserChange(is_disabled=True), by=Actor())

    asyncio.run(disable())

    assert site.sign_in().status_code == 401


def test_rotated_keys_are_fetched_again_but_not_for_every_invented_name(site: _Site) -> None:
    assert site.sign_in().status_code == 303
    site.provider.rotate("k2")
    site.clock.advance(11)
    assert site.sign_in().status_code == 303
    assert site.provider.asked == ["description", "keys", "keys"]

    site.provider.headers = {"kid": "made-up"}
    assert [site.sign_in().status_code for _ in range(3)] == [401] * 3
    assert site.provider.asked == ["description", "keys", "keys"]
    site.clock.advance(11)
    assert site.sign_in().status_code == 401
    assert site.provider.asked == ["description", "keys", "keys", "keys"]


_NOW = int(time.time())
_BAD: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "another issuer": {"iss": "https://evil.example.com"},
    "another audience": {"aud": "other"},
    "another party": {"aud": [_CLIENT, "other"], "azp": "other"},
    "expired": {"exp": _NOW - 3600, "iat": _NOW - 7200},
    "from the future": {"iat": _NOW + 86_400, "nbf": _NOW + 86_400},
}


@pytest.mark.parametrize("name", _BAD)
def test_an_invalid_id_token_is_refused(name: str, site: _Site) -> None:
    site.provider.changes = _BAD[name]

    answer = site.sign_in()

    assert (answer.status_code, answer.json()["detail"]) == (401, "the sign-in failed: start again")
    assert "__Host-taskmq" not in site.browser.cookies


def test_a_token_without_a_signature_of_the_provider_is_refused(site: _Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = site.provider.sign
    stranger = _build_key("stranger")
    curve = ec.generate_private_key(ec.SECP256R1())
    for key, algorithm in ((stranger, "RS256"), (curve, "ES256"), (_SECRET * 8, "HS256"), ("", "none")):
        monkeypatch.setattr(
            site.provider,
            "sign",
            lambda claims, key=key, algorithm=algorithm: sign(claims, key=key, algorithm=algorithm),
        )

        assert site.sign_in().status_code == 401, algorithm


def test_a_callback_is_accepted_only_from_the_initiating_browser_and_only_once(site: _Site) -> None:
    where = site.at_provider(site.begin())
    kept = site.browser.cookies["__Host-taskmq-oidc"]
    site.browser.cookies.clear()

    assert site.end(where).status_code == 401
    site.browser.cookies.set("__Host-taskmq-oidc", kept)
    assert site.end(where.replace("state=", "state=x")).status_code == 401
    assert site.end(f"{where}&iss=https://evil.example.com".replace(f"iss={_ISSUER}", "")).status_code == 401
    assert site.end(where).status_code == 303
    site.browser.cookies.set("__Host-taskmq-oidc", kept)
    assert site.end(where).status_code == 401
    for broken in ("", "e30=", "%%%", "bm8="):
        site.browser.cookies.set("__Host-taskmq-oidc", broken)
        assert site.end(where).status_code == 401


def test_a_code_is_useless_without_the_verifier_of_the_browser(site: _Site) -> None:
    stolen = parse_qs(urlsplit(site.at_provider(site.begin())).query)["code"][0]
    own = site.at_provider(site.begin())
    (code,) = parse_qs(urlsplit(own).query)["code"]

    assert site.end(own.replace(code, stolen)).status_code == 401


def test_a_refusal_of_the_provider_is_reported(site: _Site) -> None:
    state = parse_qs(urlsplit(site.begin()).query)["state"][0]

    answer = site.end(f"/api/v1/auth/oidc/callback?state={state}&error=access_denied&error_description=no")

    assert (answer.status_code, answer.json()["detail"]) == (403, "the provider refused the sign-in")


def test_a_provider_that_does_not_answer_is_temporarily_unavailable(site: _Site) -> None:
    site.provider.is_down = True

    answer = site.browser.get("/api/v1/auth/oidc/login", follow_redirects=False)

    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    site.provider.is_down = False
    site.provider.description = {"issuer": "https://other.example.com"}
    assert site.browser.get("/api/v1/auth/oidc/login", follow_redirects=False).status_code == 503
    site.provider.description = {"token_endpoint": "http://10.0.0.7/token"}
    assert site.browser.get("/api/v1/auth/oidc/login", follow_redirects=False).status_code == 503


def test_unreadable_keys_are_ignored_and_a_nameless_key_must_be_the_only_one(
    site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.provider.headers = {"kid": ""}
    assert site.sign_in().status_code == 303
    site.clock.advance(3601)
    monkeypatch.setattr(site.provider, "keys_text", "<html>")
    assert site.sign_in().status_code == 503
    monkeypatch.setattr(site.provider, "keys_text", '{"keys": []}')
    assert site.sign_in().status_code == 503


def test_a_provider_may_require_the_secret_in_the_body(tmp_path: Path) -> None:
    provider = _Provider()
    provider.methods = ["client_secret_post"]
    with _open(tmp_path, provider) as site:
        assert site.sign_in().status_code == 303


@pytest.mark.parametrize(
    "following", ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "/a%0d%0ab"]
)
def test_the_browser_is_redirected_only_to_this_site_at_the_end(following: str, site: _Site) -> None:
    answer = site.browser.get(f"/api/v1/auth/oidc/login?next={following}", follow_redirects=False)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_field")


def test_a_server_without_a_provider_has_no_provider_sign_in(tmp_path: Path) -> None:
    with open_site(tmp_path) as plain:
        for path in ("login", "callback"):
            assert plain("GET", f"/api/v1/auth/oidc/{path}", by=None).json()["code"] == "no_provider"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"issuer": "http://login.example.com"}, "issuer"),
        ({"issuer": ""}, "issuer"),
        ({"public_url": "ftp://jobs"}, "public URL"),
        ({"client_id": ""}, "client id"),
        ({"roles": ()}, "GROUP=TENANT:ROLE"),
    ],
)
def test_invalid_settings_are_refused(change: dict[str, Any], says: str) -> None:
    given = {name: getattr(_SETTINGS, name) for name in _SETTINGS.__struct_fields__}

    with pytest.raises(InvalidSetting, match=says):
        OidcSettings(**given | change)


@pytest.mark.parametrize("text", ["ops", "ops=acme", "ops=acme:king", "=acme:viewer", "ops=:viewer"])
def test_an_invalid_role_of_a_group_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="GROUP=TENANT:ROLE"):
        GroupRole.read(text)


def test_the_highest_role_of_several_groups_counts_and_no_secret_is_shown() -> None:
    assert GroupRole.read("cn=ops=*:operator") == GroupRole("cn=ops", "*", Role.OPERATOR)
    assert _SETTINGS.memberships(frozenset({"all", "ops"})) == (
        Membership("acme", Role.OPERATOR, groups=("ops", "all")),
    )
    assert _SETTINGS.memberships(frozenset({"none"})) == ()
    assert _SECRET not in repr(_SETTINGS)
