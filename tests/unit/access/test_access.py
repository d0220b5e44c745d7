"""Logins and credentials, and the access that they give."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq.access import PasswordHasher, SessionTimes, actor_of
from taskmq.contracts.identity import UserChange
from taskmq.errors import (
    IdentityNotFound,
    LoginThrottled,
    NotAuthenticated,
    NotPermitted,
    StoreUnavailable,
    UnsupportedFeature,
)
from taskmq.model.identity import EVERYTHING_OF_ALL, Permission, Role, Scope, digest
from tests.unit.access.kit import BY, PASSWORD, House


def _run(test: Callable[[House], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test(House())

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@_run
async def test_a_login_returns_a_session_that_identifies_the_caller(house: House) -> None:
    ann = await house.user("Ann", Role.OPERATOR, "acme")

    begun = await house.access.login("ann", PASSWORD, address="192.0.2.1", agent="x" * 1000, request_id="r-1")

    identity = await house.server().authenticate(session=begun.secret)
    assert identity == begun.identity
    assert (identity.user_id, identity.user, identity.via) == (ann.id, "Ann", "session")
    assert begun.ends == house.clock.now_ms() + 12 * 3_600_000
    (session,) = await house.store.identity.credentials.sessions(ann.id)
    assert session.id == identity.credential
    assert len(session.agent) == 200
    entry = (await house.audit())[-1].entry()
    assert (entry.action, entry.user, entry.address, entry.request_id) == ("session.begin", "Ann", "192.0.2.1", "r-1")


@_run
async def test_no_secret_is_stored_in_plain_text(house: House) -> None:
    ann = await house.user()
    begun = await house.access.login("ann", PASSWORD, address="a")
    token = await house.administration.add_token(ann.id, "ci", by=BY)

    kept = house.database.dump()

    for secret in (PASSWORD, begun.secret, begun.csrf, token.secret):
        assert secret not in kept
    assert PASSWORD not in repr(begun)
    assert "argon2id" in house.password(ann.id)


@_run
async def test_a_failed_login_never_says_why_it_failed(house: House) -> None:
    await house.user("ann")
    gone = await house.user("gone")
    await house.administration.change_user(gone.id, UserChange(is_disabled=True), by=BY)
    await house.administration.add_user("tokens", None, by=BY)

    said: set[str] = set()
    for name, password in (
        ("ann", "wrong password 1"),
        ("nobody", PASSWORD),
        ("gone", PASSWORD),
        ("tokens", ""),
        ("", ""),
        ("\0", "\ud800"),
        ("ann", "x" * 100_000),
    ):
        with pytest.raises(NotAuthenticated) as caught:
            await house.access.login(name, password, address=f"from {name}")
        assert not isinstance(caught.value, LoginThrottled)
        said.add(str(caught.value))

    assert said == {"the name or the password is wrong, or the account is disabled"}
    assert (await house.audit())[-1].action == "user.add"


@pytest.mark.real_time
async def test_a_failed_login_is_logged_without_the_typed_credentials(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    for _ in range(6):
        with pytest.raises(NotAuthenticated):
            await house.access.login("my password 1", "my password 2", address="192.0.2.1")

    assert caplog.messages == [
        *["sign-in from 192.0.2.1 failed"] * 5,
        "sign-in from 192.0.2.1 throttled: too many failures",
    ]


@_run
async def test_all_servers_throttle_failed_logins_together_and_a_success_resets_the_count(house: House) -> None:
    await house.user()
    servers = [house.access, house.server()]

    for turn in range(5):
        with pytest.raises(NotAuthenticated):
            await servers[turn % 2].login("ann", "wrong password 1", address="192.0.2.1")
    with pytest.raises(LoginThrottled) as caught:
        await house.server().login("ann", PASSWORD, address="192.0.2.1")
    assert caught.value.retry_after == 1
    house.clock.advance(1)
    await house.access.login("ann", PASSWORD, address="192.0.2.1")

    for _ in range(4):
        with pytest.raises(NotAuthenticated):
            await house.access.login("ann", "wrong password 1", address="192.0.2.1")
    await house.access.login("ann", PASSWORD, address="192.0.2.1")


@_run
async def test_waits_grow_with_each_failed_login_and_expire(house: House) -> None:
    await house.user()
    waits: list[float] = []

    for _ in range(9):
        with pytest.raises(NotAuthenticated):
            await house.access.login("ann", "wrong password 1", address="192.0.2.1")
        with pytest.raises(NotAuthenticated) as caught:
            await house.access.login("ann", "wrong password 1", address="192.0.2.1")
        if isinstance(caught.value, LoginThrottled):
            waits.append(caught.value.retry_after)
            house.clock.advance(caught.value.retry_after)

    assert waits == sorted(waits)
    assert len(waits) >= 5
    house.clock.advance(15 * 60)
    await house.access.login("ann", PASSWORD, address="192.0.2.1")


@_run
async def test_a_session_ends_when_it_is_idle_or_reaches_its_maximum_age(house: House) -> None:
    await house.user()
    idle = await house.access.login("ann", PASSWORD, address="a")
    used = await house.access.login("ann", PASSWORD, address="a")

    house.clock.advance(30 * 60 - 1)
    await house.access.authenticate(session=used.secret)
    house.clock.advance(1)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=idle.secret)
    for _ in range(23):
        house.clock.advance(30 * 60 - 10)
        await house.access.authenticate(session=used.secret)
    house.clock.advance(10 * 60)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=used.secret)


@_run
async def test_a_login_ends_the_previous_session_of_the_browser(house: House) -> None:
    await house.user()
    first = await house.access.login("ann", PASSWORD, address="a")
    await house.access.authenticate(session=first.secret)

    second = await house.access.login("ann", PASSWORD, address="a", replaces=first.secret)

    assert second.secret != first.secret
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=first.secret)
    await house.access.authenticate(session=second.secret)


@_run
async def test_logging_out_ends_the_session_on_this_server_at_once(house: House) -> None:
    await house.user()
    begun = await house.access.login("ann", PASSWORD, address="a")
    await house.access.authenticate(session=begun.secret)

    await house.access.logout(begun.secret, by=actor_of(begun.identity, address="a"))

    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=begun.secret)
    await house.access.logout(begun.secret, by=BY)
    assert (await house.audit())[-1].action == "session.end"


@_run
async def test_rotating_a_session_changes_its_secret(house: House) -> None:
    await house.user()
    begun = await house.access.login("ann", PASSWORD, address="a")

    rotated = await house.access.rotate(begun.secret)

    assert rotated.identity == begun.identity
    assert rotated.csrf != begun.csrf
    await house.access.authenticate(session=rotated.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=begun.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.rotate(begun.secret)


@_run
async def test_a_login_upgrades_a_password_hash_with_outdated_parameters(house: House) -> None:
    before = await PasswordHasher(time_cost=2, memory_cost=16).hash(PASSWORD)
    ann = await house.import_user("ann", before)

    await house.access.login("ann", PASSWORD, address="a")

    after = house.password(ann.id)
    assert after != before
    assert "m=8,t=1" in after
    await house.access.login("ann", PASSWORD, address="a")
    assert house.password(ann.id) == after


@_run
async def test_an_unreadable_password_hash_accepts_no_password(house: House) -> None:
    await house.import_user("ann", "$2b$12$not-argon2")

    with pytest.raises(NotAuthenticated):
        await house.access.login("ann", PASSWORD, address="a")


@_run
async def test_a_token_identifies_the_caller_and_is_limited_to_its_scopes(house: House) -> None:
    ann = await house.user("ann", Role.ADMIN, "acme")
    scoped = await house.administration.add_token(
        ann.id, "ci", scopes=frozenset({Permission.JOBS_READ}), tasks=["billing.*"], by=BY
    )
    whole = await house.administration.add_token(ann.id, "all", by=BY)

    identity = await house.access.authenticate(token=scoped.secret)
    assert (identity.via, identity.credential, identity.tasks) == ("token", scoped.token.id, ("billing.*",))
    assert house.access.authorise(identity, Permission.JOBS_READ, "acme") == Scope(frozenset({"acme"}))
    with pytest.raises(NotPermitted):
        house.access.authorise(identity, Permission.JOBS_SUBMIT, "acme")
    everything = await house.access.authenticate(token=whole.secret)
    assert house.access.authorise(everything, Permission.MEMBERS_CHANGE, "acme") == Scope(frozenset({"acme"}))
    with pytest.raises(NotPermitted):
        house.access.authorise(everything, Permission.ACCOUNT_CHANGE)


@_run
async def test_an_invalid_credential_identifies_no_user(house: House) -> None:
    ann = await house.user()
    begun = await house.access.login("ann", PASSWORD, address="a")
    token = await house.administration.add_token(ann.id, "ci", by=BY)

    for presented in (
        {},
        {"token": ""},
        {"session": ""},
        {"token": begun.secret},
        {"session": token.secret},
        {"token": token.secret + "x"},
        {"token": token.secret[:-1] + ("A" if token.secret[-1] != "A" else "B")},
        {"token": "tmq_\ud800"},
        {"session": "x" * 100_000},
    ):
        with pytest.raises(NotAuthenticated) as caught:
            await house.access.authenticate(**presented)
        assert str(caught.value) == "sign in, or use a valid API token"


@_run
async def test_a_revocation_applies_here_at_once_and_on_other_servers_within_a_minute(house: House) -> None:
    ann = await house.user()
    token = await house.administration.add_token(ann.id, "ci", by=BY)
    here, elsewhere = house.access, house.server()
    for server in (here, elsewhere):
        await server.authenticate(token=token.secret)

    await house.administration.revoke_token(token.token.id, by=BY)

    with pytest.raises(NotAuthenticated):
        await here.authenticate(token=token.secret)
    await elsewhere.authenticate(token=token.secret)
    house.clock.advance(60)
    with pytest.raises(NotAuthenticated):
        await elsewhere.authenticate(token=token.secret)


@_run
async def test_a_revoked_role_is_lost_on_this_server_at_once(house: House) -> None:
    await house.user("root")
    ann = await house.user("ann", Role.ADMIN, "acme")
    begun = await house.access.login("ann", PASSWORD, address="a")
    assert (await house.access.authenticate(session=begun.secret)).memberships

    await house.administration.remove_role(ann.id, "acme", by=BY)
    assert (await house.access.authenticate(session=begun.secret)).memberships == ()
    await house.administration.set_role(ann.id, "acme", Role.VIEWER, by=BY)
    assert [each.role for each in (await house.access.authenticate(session=begun.secret)).memberships] == ["viewer"]
    await house.administration.change_tenant("acme", is_disabled=True, by=BY)
    assert (await house.access.authenticate(session=begun.secret)).memberships == ()
    await house.administration.erase_user(ann.id, by=BY)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=begun.secret)


@_run
async def test_a_credential_revoked_during_its_lookup_is_not_cached(house: House) -> None:
    ann = await house.user()
    token = await house.administration.add_token(ann.id, "ci", by=BY)
    # The store has answered; the answer is still in transit.
    looking = asyncio.ensure_future(house.access.authenticate(token=token.secret))
    await asyncio.sleep(0)
    house.access.forget()
    await looking
    await house.store.identity.credentials.revoke_token(token.token.id, by=BY)

    house.clock.advance(60)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(token=token.secret)


@_run
async def test_only_recently_seen_users_are_accepted_while_the_store_is_unavailable(house: House) -> None:
    ann = await house.user()
    token = await house.administration.add_token(ann.id, "ci", by=BY)
    other = await house.administration.add_token(ann.id, "other", by=BY)
    store = house.open_store()
    server = house.server(SessionTimes(fresh=20), store=store)
    await server.authenticate(token=token.secret)

    store.is_reachable = False

    await server.authenticate(token=token.secret)
    with pytest.raises(StoreUnavailable):
        await server.authenticate(token=other.secret)
    house.clock.advance(20)
    with pytest.raises(StoreUnavailable):
        await server.authenticate(token=token.secret)


@_run
async def test_the_credential_cache_is_bounded(house: House) -> None:
    ann = await house.user()
    tokens = [await house.administration.add_token(ann.id, f"t{turn}", by=BY) for turn in range(3)]
    house.access._known = {digest(f"{turn}"): house.access._known.get(b"") for turn in range(10_000)}  # type: ignore[misc]

    for token in tokens:
        await house.access.authenticate(token=token.secret)

    assert len(house.access._known) == 3


@_run
async def test_a_change_in_a_session_requires_its_csrf_token(house: House) -> None:
    await house.user()
    begun = await house.access.login("ann", PASSWORD, address="a")
    other = await house.access.login("ann", PASSWORD, address="a")

    house.access.check_csrf(begun.secret, begun.csrf)
    assert house.access.csrf_token(begun.secret) == begun.csrf
    for presented in (None, "", other.csrf, begun.secret, begun.csrf + "x", "é", "\ud800"):
        with pytest.raises(NotPermitted, match="CSRF"):
            house.access.check_csrf(begun.secret, presented)


@_run
async def test_foreign_tenants_do_not_exist_and_own_ones_name_the_missing_permission(house: House) -> None:
    await house.user("ann", Role.VIEWER, "acme")
    await house.administration.add_tenant("other", by=BY)
    ann = (await house.access.login("ann", PASSWORD, address="a")).identity
    authorise = house.access.authorise

    assert authorise(ann, Permission.JOBS_READ, "acme") == Scope(frozenset({"acme"}))
    assert authorise(ann, Permission.JOBS_READ) == Scope(frozenset({"acme"}))
    assert authorise(ann, Permission.ACCOUNT_CHANGE) == EVERYTHING_OF_ALL
    with pytest.raises(NotPermitted) as caught:
        authorise(ann, Permission.JOBS_SUBMIT, "acme")
    assert caught.value.permission == "jobs.submit"
    for foreign in ("other", "none", ""):
        with pytest.raises(IdentityNotFound):
            authorise(ann, Permission.JOBS_READ, foreign)
    for instance in (Permission.QUEUES_READ, Permission.USERS_READ, Permission.TENANTS_CHANGE):
        with pytest.raises(NotPermitted):
            authorise(ann, instance, "acme")
    with pytest.raises(NotPermitted):
        authorise(replace(ann, memberships=()), Permission.JOBS_READ)


def test_passwords_without_argon2_name_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "argon2", None)

    with pytest.raises(UnsupportedFeature, match=r"taskmq\[server\]"):
        PasswordHasher()
