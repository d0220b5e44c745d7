"""Accounts changed by administrators."""

import msgspec
import pytest

from taskmq.access import IdentityAdministration, PasswordSet, SessionTimes
from taskmq.access.passwords import _load_known
from taskmq.contracts.identity import UserChange
from taskmq.errors import (
    ConfirmationNeeded,
    IdentityConflict,
    IdentityNotFound,
    InvalidOption,
    LoginThrottled,
    NotAuthenticated,
)
from taskmq.model.identity import EVERYWHERE, SELF_SERVICE, Membership, Role
from tests.unit.access.kit import BY, PASSWORD, House

pytestmark = pytest.mark.real_time

OTHER = "seven green bicycles"


async def test_the_first_admin_is_added_only_once() -> None:
    house = House()
    root = await house.administration.add_first_admin("root", PASSWORD, by=BY)

    with pytest.raises(IdentityConflict, match="already has an admin"):
        await house.administration.add_first_admin("other", PASSWORD, by=BY)

    account = await house.store.identity.accounts.account(root.id)
    assert account is not None
    assert account.memberships == (Membership(EVERYWHERE, Role.ADMIN),)
    await house.access.login("root", PASSWORD, address="a")


async def test_a_common_password_is_refused_for_every_user() -> None:
    house = House()
    ann = await house.user()

    for password in ("short", "Password2026!!", "qwertyuiop12345", "a" * 2000):
        with pytest.raises(InvalidOption):
            await house.administration.add_first_admin("root", password, by=BY)
        with pytest.raises(InvalidOption):
            await house.administration.add_user("bob", password, by=BY)
        with pytest.raises(InvalidOption):
            await house.administration.set_password(ann.id, password, by=BY)

    assert len(await house.store.identity.accounts.users()) == 1


def test_the_list_of_known_passwords_is_long_and_in_lower_case() -> None:
    """Each entry covers all its variants with leading or trailing digits and signs."""
    known = _load_known()

    assert len(known) > 15_000
    assert {"password", "qwerty", "iloveyou", "letmein"} <= known
    assert all(each == each.casefold() for each in known)


async def test_invalid_names_patterns_and_texts_are_refused() -> None:
    house = House()
    ann = await house.user("ann", Role.ADMIN, "acme")
    administration = house.administration

    for call in (
        administration.add_user("a b", PASSWORD, by=BY),
        administration.add_user("bob", PASSWORD, email="a\nb", by=BY),
        administration.add_user("bob", None, memberships=[Membership("acme", Role.VIEWER, ("[",))], by=BY),
        administration.change_user(ann.id, UserChange(name="*"), by=BY),
        administration.change_user(ann.id, UserChange(email="\ud800"), by=BY),
        administration.add_tenant("*", by=BY),
        administration.add_tenant("ok", description="\0", by=BY),
        administration.change_tenant("acme", description="x" * 501, by=BY),
        administration.set_role(ann.id, "acme", Role.VIEWER, tasks=["a b"], by=BY),
        administration.add_token(ann.id, "", by=BY),
        administration.add_token(ann.id, "ci", tasks=["é"], by=BY),
    ):
        with pytest.raises(InvalidOption):
            await call

    assert [record.action for record in await house.audit()] == ["tenant.add", "user.add", "role.set"]


async def test_users_change_their_own_password_and_keep_the_session() -> None:
    house = House()
    ann = await house.user()
    mine = await house.access.login("ann", PASSWORD, address="a")
    other = await house.access.login("ann", PASSWORD, address="b")
    by = BY.__class__(user_id=ann.id, user="ann", via="session", credential=mine.identity.credential)

    me = mine.identity
    nobody = msgspec.structs.replace(me, user_id="nobody", user="nobody")
    with pytest.raises(NotAuthenticated):
        await house.administration.change_own_password(me, "wrong password 1", OTHER, by=by)
    with pytest.raises(NotAuthenticated):
        await house.administration.change_own_password(nobody, PASSWORD, OTHER, by=by)
    done = await house.administration.change_own_password(me, PASSWORD, OTHER, by=by)
    assert done == PasswordSet(sessions_ended=1, tokens_revoked=0, tokens_left=0)

    await house.access.authenticate(session=mine.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=other.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.login("ann", PASSWORD, address="c")
    await house.access.login("ann", OTHER, address="c")
    with pytest.raises(IdentityNotFound):
        await house.administration.set_password("nobody", OTHER, by=by)


async def test_changes_work_without_a_running_server() -> None:
    house = House()
    administration = IdentityAdministration(house.store.identity, hasher=house.hasher)
    ann = await administration.add_user("ann", None, by=BY)
    await administration.add_tenant("acme", by=BY)
    await administration.set_role(ann.id, "acme", Role.VIEWER, by=BY)

    await administration.remove_tenant("acme", by=BY)
    begun = await house.store.identity.credentials.sessions(ann.id)

    assert begun == []
    with pytest.raises(IdentityNotFound):
        await administration.end_session("none", by=BY)


async def test_a_reset_by_an_admin_ends_all_sessions_and_tokens_and_counts_them() -> None:
    house = House()
    ann = await house.user()
    session = await house.access.login("ann", PASSWORD, address="a")
    token = await house.administration.add_token(ann.id, "ci", by=BY)
    other = await house.administration.add_token((await house.import_user("bob", "")).id, "ci", by=BY)

    done = await house.administration.set_password(ann.id, OTHER, by=BY)

    assert done == PasswordSet(sessions_ended=1, tokens_revoked=1, tokens_left=0)
    for credential in ({"session": session.secret}, {"token": token.secret}):
        with pytest.raises(NotAuthenticated):
            await house.access.authenticate(**credential)
    await house.access.authenticate(token=other.secret)
    revoked = [record for record in await house.audit() if record.action == "token.revoke"]
    assert [record.subject for record in revoked] == [token.token.id]


async def test_tokens_survive_a_password_change_on_request_and_are_counted() -> None:
    house = House()
    ann = await house.user()
    me = (await house.access.login("ann", PASSWORD, address="a")).identity
    kept = await house.administration.add_token(ann.id, "ci", by=BY)

    reset = await house.administration.set_password(ann.id, OTHER, by=BY, keeps_tokens=True)
    await house.access.authenticate(token=kept.secret)
    own = await house.administration.change_own_password(me, OTHER, PASSWORD, by=BY, keeps_tokens=False)

    assert (reset.tokens_left, own.tokens_revoked, own.tokens_left) == (1, 1, 0)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(token=kept.secret)


async def test_a_recent_sign_in_replaces_the_password_and_an_older_one_does_not() -> None:
    house = House()
    await house.user()
    me = (await house.access.login("ann", PASSWORD, address="a")).identity

    house.clock.advance("299s")
    await house.access.confirm(me, None, address="a")
    house.clock.advance("1s")
    with pytest.raises(ConfirmationNeeded, match="more than five minutes ago"):
        await house.access.confirm(me, None, address="a")
    with pytest.raises(ConfirmationNeeded):
        await house.access.confirm(msgspec.structs.replace(me, credential="no session"), None, address="a")

    await house.access.confirm(me, PASSWORD, address="a")
    again = (await house.access.login("ann", PASSWORD, address="a")).identity
    await house.access.confirm(again, None, address="a")


async def test_the_fifth_wrong_password_ends_the_session_it_was_sent_with() -> None:
    house = House()
    await house.user()
    stolen = await house.access.login("ann", PASSWORD, address="a")
    own = await house.access.login("ann", PASSWORD, address="b")

    for number in range(5):
        await house.access.authenticate(session=stolen.secret)
        with pytest.raises(NotAuthenticated, match="the current password is wrong"):
            await house.access.check_password(stolen.identity, f"wrong password {number}", address="a")
        # The lockout holds however slowly the attacker guesses.
        house.clock.advance("30s")

    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=stolen.secret)
    await house.access.authenticate(session=own.secret)
    # The session has already ended.
    with pytest.raises(NotAuthenticated):
        await house.access.check_password(stolen.identity, "wrong password", address="b")
    (ended,) = [record for record in await house.audit() if record.action == "session.end"]
    assert ended.entry().note == "five wrong passwords"


async def test_a_token_used_to_guess_the_password_is_revoked() -> None:
    house = House()
    ann = await house.user()
    found = await house.administration.add_token(ann.id, "ci", scopes=SELF_SERVICE, by=BY)
    me = await house.access.authenticate(token=found.secret)

    for number in range(5):
        with pytest.raises(NotAuthenticated):
            await house.access.check_password(me, f"wrong password {number}", address=f"{number}")

    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(token=found.secret)


async def test_wrong_passwords_and_failed_logins_share_one_count() -> None:
    house = House()
    await house.user()
    me = (await house.access.login("ann", PASSWORD, address="a")).identity
    for number in range(3):
        with pytest.raises(NotAuthenticated):
            await house.access.login("ann", f"wrong password {number}", address="a")
    for number in range(2):
        with pytest.raises(NotAuthenticated):
            await house.access.check_password(me, f"wrong password {number}", address="a")

    with pytest.raises(LoginThrottled):
        await house.access.check_password(me, PASSWORD, address="a")
    with pytest.raises(LoginThrottled):
        await house.access.login("ann", PASSWORD, address="a")
    house.clock.advance("15m")
    await house.access.check_password(me, PASSWORD, address="a")


async def test_a_token_without_an_expiry_gets_the_configured_maximum_age() -> None:
    house = House()
    ann = await house.user()
    before = await house.administration.add_token(ann.id, "before", by=BY)
    strict = house.server(SessionTimes(token=3600))
    administration = IdentityAdministration(house.store.identity, hasher=house.hasher, access=strict)
    house.clock.advance("30m")

    made = await administration.add_token(ann.id, "made", by=BY)
    longer = await administration.add_token(ann.id, "longer", by=BY, expires=house.clock.now_ms() + 7_200_000)

    assert (before.token.expires, made.token.expires) == (None, house.clock.now_ms() + 3_600_000)
    await strict.authenticate(token=before.secret)
    house.clock.advance("31m")
    for server, token in ((strict, made), (strict, longer), (house.access, before)):
        await server.authenticate(token=token.secret)
    with pytest.raises(NotAuthenticated):
        await strict.authenticate(token=before.secret)
    house.clock.advance("30m")
    with pytest.raises(NotAuthenticated):
        await strict.authenticate(token=made.secret)
    await strict.authenticate(token=longer.secret)
