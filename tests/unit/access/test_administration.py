"""Accounts as administrators change them."""

import pytest

from taskmq.access import IdentityAdministration
from taskmq.access.passwords import _known
from taskmq.contracts.identity import UserChange
from taskmq.errors import IdentityConflict, IdentityNotFound, InvalidOption, NotAuthenticated
from taskmq.model.identity import EVERYWHERE, Membership, Role
from tests.unit.access.kit import BY, PASSWORD, House

pytestmark = pytest.mark.real_time

OTHER = "seven green bicycles"


async def test_the_first_admin_is_added_once() -> None:
    house = House()
    root = await house.administration.add_first_admin("root", PASSWORD, by=BY)

    with pytest.raises(IdentityConflict, match="has an admin already"):
        await house.administration.add_first_admin("other", PASSWORD, by=BY)

    account = await house.store.identity.accounts.account(root.id)
    assert account is not None
    assert account.memberships == (Membership(EVERYWHERE, Role.ADMIN),)
    await house.access.login("root", PASSWORD, address="a")


async def test_a_password_that_attackers_try_first_is_refused_for_everybody() -> None:
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


def test_the_known_passwords_are_many_and_in_lower_case() -> None:
    """Each of them stands for all that begin or end with digits and signs."""
    known = _known()

    assert len(known) > 15_000
    assert {"password", "qwerty", "iloveyou", "letmein"} <= known
    assert all(each == each.casefold() for each in known)


async def test_names_patterns_and_texts_that_cannot_be_are_refused() -> None:
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

    assert [record.action for record in house.model.identity.audit] == ["tenant.add", "user.add", "role.set"]


async def test_a_user_changes_their_password_by_the_present_one_and_keeps_the_session() -> None:
    house = House()
    ann = await house.user()
    mine = await house.access.login("ann", PASSWORD, address="a")
    other = await house.access.login("ann", PASSWORD, address="b")
    by = BY.__class__(user_id=ann.id, user="ann", via="session", credential=mine.identity.credential)

    with pytest.raises(NotAuthenticated):
        await house.administration.change_own_password(ann.id, "wrong password 1", OTHER, by=by)
    with pytest.raises(NotAuthenticated):
        await house.administration.change_own_password("nobody", PASSWORD, OTHER, by=by)
    await house.administration.change_own_password(ann.id, PASSWORD, OTHER, by=by)

    await house.access.authenticate(session=mine.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.authenticate(session=other.secret)
    with pytest.raises(NotAuthenticated):
        await house.access.login("ann", PASSWORD, address="c")
    await house.access.login("ann", OTHER, address="c")
    with pytest.raises(IdentityNotFound):
        await house.administration.set_password("nobody", OTHER, by=by)


async def test_changes_without_a_server_need_nobody_to_forget() -> None:
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
