"""Request rates of callers."""

from pathlib import Path
from typing import Any

import pytest
from litestar.connection import ASGIConnection
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from taskmq.errors import InvalidSetting
from taskmq.model.identity import Identity, Membership, Role, digest
from taskmq.server import EventSource, ServerSettings
from taskmq.server.live.sources import sign
from taskmq.server.rates import RateLimits, RequestLimits
from taskmq.testing import FakeClock
from tests.nightly import nightly_except
from tests.unit.app_kit import new_url
from tests.unit.server.kit import CALLERS, Site, build_served, define, open_site


def test_a_burst_is_accepted_and_then_the_configured_rate() -> None:
    limits = RateLimits(rate=2, burst=3)

    assert [limits.take("a", now=100.0) for _ in range(5)] == [0, 0, 0, 1, 1]
    assert [limits.take("a", now=100.5) for _ in range(2)] == [0, 1]
    assert limits.take("b", now=100.5) == 0
    assert [limits.take("a", now=200.0) for _ in range(4)] == [0, 0, 0, 1]


def test_a_slow_rate_returns_the_time_to_wait() -> None:
    limits = RateLimits(rate=0.1, burst=1)

    assert [limits.take("a", now=0.0) for _ in range(2)] == [0, 10]
    assert limits.wait("a", now=4.0) == 6


def test_every_call_is_accepted_without_a_rate() -> None:
    limits = RateLimits(rate=0, burst=0)

    assert {limits.take("a", now=0.0) for _ in range(100)} == {0}


def test_unused_keys_are_dropped_and_used_ones_are_kept() -> None:
    limits = RateLimits(rate=1, burst=1)
    for number in range(9_999):
        limits.take(f"old-{number}", now=0.0)
    limits.take("used", now=100.0)

    limits.take("another", now=100.0)

    assert len(limits._buckets) == 2
    assert limits.take("used", now=100.0) == 1
    for number in range(10_000):
        limits.take(f"new-{number}", now=100.0)
    assert len(limits._buckets) <= 10_000


def test_a_caller_with_too_many_requests_has_to_wait_and_others_do_not(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        taken, refused = (site("GET", "/jobs/count") for _ in range(2))
        other = site("GET", "/jobs/count", by="picky")

    assert (taken.status_code, refused.status_code, other.status_code) == (200, 429, 200)
    assert refused.json()["code"] == "too_many_requests"
    assert int(refused.headers["retry-after"]) > 1


def test_many_tokens_of_one_user_share_the_rate() -> None:
    app = TaskMQ(new_url())
    define(app)

    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        user, _, token = connection.headers["authorization"].removeprefix("Bearer ").partition("/")
        memberships = (Membership("acme", Role.VIEWER),)
        return Identity(user_id=user, user=user, memberships=memberships, via="session", credential=f"{user}/{token}")

    def ask(user: str, token: int) -> int:
        return client.get("/api/v1/auth/me", headers={"Authorization": f"Bearer {user}/{token}"}).status_code

    with TestClient(build_served(app, identify=identify, settings=ServerSettings(rate=0.1))) as client:
        # Each token has a burst of one, and the user four times that.
        assert [ask("ann", token) for token in range(6)] == [200] * 4 + [429] * 2
        assert ask("bob", 0) == 200


def test_an_address_with_many_bad_credentials_has_to_wait(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        answers = [site("GET", "/jobs", by="stranger").status_code for _ in range(3)]
        public = site("GET", "/health/live", by=None).status_code

    assert answers == [401, 429, 429]
    assert public == 200


_COSTLY: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    "logIn": ("POST", "/auth/login", {"username": "ann", "password": "wrong"}, {}),
    "logInCompat": ("POST", "/auth/login", {"username": "ann", "password": "wrong"}, {}),
    "authorize": ("POST", "/auth/authorize", {"token": "x", "action": "jobs.read"}, {}),
    "authorizeCompat": ("POST", "/auth/authorize", {"token": "tmq_" + "a" * 43, "action": "jobs.read"}, {}),
    "beginOidcLogin": ("GET", "/auth/oidc/login", None, {}),
    "endOidcLogin": ("GET", "/auth/oidc/callback?state=x&code=y", None, {}),
    # By its signature.
    "sendEvent": ("POST", "/events?source=shop", {}, {"Taskmq-Signature": f"t=1,n=a,v1={'0' * 64}"}),
}
_FREE = {"getHealth", "getLiveness", "getReadiness", "getOpenApi"}
"""Calls that are answered from memory, or from one query a second for all callers."""


def test_each_public_call_is_free_or_limited(site: Site) -> None:
    paths: dict[str, Any] = site("GET", "/api/openapi.json", by=None).json()["paths"]
    public = {one["operationId"] for methods in paths.values() for one in methods.values() if not one["security"]}

    assert public == _FREE | _COSTLY.keys() - {"sendEvent"}


@pytest.mark.parametrize(
    "name",
    nightly_except(
        {"logIn", "sendEvent"},
        _COSTLY,
        pytest.mark.nightly(
            "tests/unit/server/test_rates.py::test_an_address_with_too_many_anonymous_calls_has_to_wait"
        ),
    ),
)
def test_an_address_with_too_many_anonymous_calls_has_to_wait(tmp_path: Path, name: str) -> None:
    method, path, body, headers = _COSTLY[name]
    path = path if name.endswith("Document") else f"/api/v1{path}"
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        first, second = (site(method, path, body, by=None, headers=headers) for _ in range(2))
        # One mechanism for all of them; signed-in callers are not delayed.
        other = site("POST", "/auth/authorize", {"token": "x", "action": "jobs.read"}, by=None)
        free = [
            site("GET", each, by=None).status_code for each in ("/health/live", "/health/ready", "/api/openapi.json")
        ]

    assert first.status_code in {401, 404}
    assert (second.status_code, second.json()["code"], other.status_code) == (429, "too_many_requests", 429)
    assert int(second.headers["retry-after"]) > 1
    assert free == [200, 200, 200]


def test_an_address_claimed_by_the_client_is_ignored(tmp_path: Path) -> None:
    body = {"username": "ann", "password": "wrong"}
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        statuses = [
            site("POST", "/auth/login", body, by=None, headers={"X-Forwarded-For": f"192.0.2.{number}"}).status_code
            for number in range(3)
        ]

    assert statuses == [401, 429, 429]


def test_a_token_under_inspection_counts_separately(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        secret = _token_of_a_user(site)
        asked = {"token": secret, "action": "jobs.read"}
        good = [site("POST", "/auth/authorize", asked, by=None).status_code for _ in range(2)]
        bad = site("POST", "/auth/authorize", {"token": "x", "action": "jobs.read"}, by=None).status_code

    assert good == [200, 429]
    # Its address has a clean record so far.
    assert bad == 401


def _token_of_a_user(site: Site) -> str:
    async def add() -> str:
        administration = IdentityAdministration(
            site.app.sessions.store().identity, hasher=PasswordHasher(time_cost=1, memory_cost=64)
        )
        user = await administration.add_user("ann", None, by=Actor(user="tests"))
        return (await administration.add_token(user.id, "ci", by=Actor(user="tests"))).secret

    with site.client.portal() as portal:
        return portal.call(add)


def test_the_rest_of_a_burst_can_be_borrowed_and_returned() -> None:
    limits = RateLimits(rate=1, burst=4)

    assert [limits.take("all", now=0.0, leaving=0.5) for _ in range(3)] == [0, 0, 1]
    assert [limits.take("all", now=0.0) for _ in range(3)] == [0, 0, 1]
    limits.give_back("all")
    limits.give_back("nobody")
    assert [limits.take("all", now=0.0) for _ in range(2)] == [0, 1]


def test_an_anonymous_client_does_not_delay_known_credentials(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=2), clock=FakeClock()) as site:
        before = site("GET", "/jobs/count").status_code
        flood = [site("GET", "/jobs", by=f"made-up-{number}").status_code for number in range(60)]
        nothing = [site("GET", "/jobs", by=None).status_code for _ in range(30)]
        during = [site("GET", "/jobs/count").status_code for _ in range(10)]
        public = site("GET", "/health/ready", by=None).status_code

    assert (before, set(flood), flood[0], flood[-1]) == (200, {401, 429}, 401, 429)
    assert set(nothing) == {429}
    assert (set(during), public) == ({200}, 200)


def test_a_new_credential_shares_what_a_flood_leaves(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_site(tmp_path, ServerSettings(rate=2), clock=clock) as site:
        while site("GET", "/jobs", by="made-up").status_code == 401:
            pass
        refused = site("GET", "/jobs/count", by="picky")
        clock.advance(10)
        again = [site("GET", "/jobs/count", by="picky").status_code for _ in range(5)]

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 10
    assert again == [200] * 5


def test_an_expired_credential_counts_as_unknown(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=2), clock=FakeClock()) as site:
        assert site("GET", "/jobs/count", by="picky").status_code == 200
        taken = CALLERS.pop("picky")
        try:
            answers = [site("GET", "/jobs/count", by="picky").status_code for _ in range(60)]
        finally:
            CALLERS["picky"] = taken

    assert (answers[0], answers[-1]) == (401, 429)


def test_signed_events_are_accepted_while_their_address_sends_bad_requests(tmp_path: Path) -> None:
    clock, secret = FakeClock(), "of the shop and of us"
    source = EventSource(name="shop", task="on_event", tenant="acme", secrets=(secret,))
    with open_site(tmp_path, ServerSettings(rate=2), clock=clock, sources=[source]) as site:

        @site.app.task(name="on_event", queue="work")
        def on_event(event: dict[str, Any]) -> None: ...

        for number in range(60):
            site("GET", "/jobs", by=f"made-up-{number}")
        signature = sign(secret, b"{}", event_id="e1", at=clock.now_ms() // 1000)
        good = site("POST", "/events?source=shop", {}, by=None, headers={"Taskmq-Signature": signature})
        bad = site("POST", "/events?source=shop", {}, by=None, headers={"Taskmq-Signature": "t=1,n=a,v1=00"})

    assert (good.status_code, bad.status_code) == (201, 429)


def test_credentials_are_remembered_up_to_a_number_with_the_used_ones_longest() -> None:
    limits = RequestLimits(1.0)
    limits.recognise("used")
    for number in range(10_000 - 1):
        limits.recognise(f"old-{number}")
    limits.recognise("used")
    limits.recognise("new")

    assert len(limits._recognised) == 10_000
    assert {digest("used"), digest("new")} <= limits._recognised.keys()
    assert digest("old-0") not in limits._recognised


def test_a_flood_of_probes_queries_the_store_once_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_site(tmp_path, clock=clock) as site:
        assert site("GET", "/health/ready", by=None).status_code == 200
        asked = site.served.litestar.state["samples"]["ready"]
        first = asked.at
        for _ in range(3):
            assert site("GET", "/health/ready", by=None).json() == {"status": "ready", "store": True}
        shared = asked.at
        clock.advance(1.1)
        assert site("GET", "/health/ready", by=None).status_code == 200

    assert shared == first < asked.at


def test_an_invalid_rate_is_refused() -> None:
    for rate in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidSetting, match="rate"):
            ServerSettings(rate=rate)
