"""Tests of roles."""

import asyncio
import uuid

from taskmq.contracts.identity import UserChange
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import EVERYTHING_OF_ALL, EVERYWHERE, NOTHING_AT_ALL, Membership, Role, Scope
from taskmq.testing.job_store_suite.identity.kit import BY, IdentityCase, People
from taskmq.testing.runner import case, raises


class RoleCases(IdentityCase):
    """Every guarantee of `AccountStore` about memberships."""

    @case
    async def test_a_user_has_one_role_per_tenant_and_the_last_grant_wins(self) -> None:
        people, other = self.people(), self.people()
        await people.tenant("acme")
        ann = await people.user("ann")

        for role in (Role.VIEWER, Role.ADMIN, Role.SUBMITTER):
            last = Membership("acme", role, ("billing.*", "mail.send"), (f"{role} of finance", "board"))
            await people.accounts.set_membership(ann.id, last, by=BY)
            assert (await other.account(ann)).memberships == (last,)

        await people.accounts.remove_membership(ann.id, "acme", by=BY)
        assert (await other.account(ann)).memberships == ()

    @case
    async def test_a_user_can_have_roles_in_several_tenants_and_on_the_instance(self) -> None:
        people = self.people()
        for name in ("north", "south"):
            await people.tenant(name)
        given = (
            Membership(EVERYWHERE, Role.VIEWER),
            Membership("north", Role.OPERATOR, ("a.*",), ("finance",)),
            Membership("south", Role.ADMIN, ()),
        )

        ann = await people.user("ann", *given)

        assert (await people.account(ann)).memberships == given

    @case
    async def test_a_role_requires_an_existing_user_and_tenant(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        await people.tenant("acme")

        with raises(IdentityNotFound):
            await people.accounts.set_membership(ann.id, Membership("other", Role.VIEWER), by=BY)
        with raises(IdentityNotFound):
            await people.accounts.set_membership(str(uuid.uuid4()), Membership("acme", Role.VIEWER), by=BY)
        with raises(IdentityNotFound):
            await people.accounts.remove_membership(ann.id, "acme", by=BY)
        with raises(IdentityNotFound):
            await people.user("bob", Membership("other", Role.VIEWER))
        assert await people.accounts.account_named("bob") is None
        assert await people.accounts.members(EVERYTHING_OF_ALL) == []

    @case
    async def test_a_disabled_tenant_grants_no_roles(self) -> None:
        people = self.people()
        await people.tenant("acme")
        ann = await people.user("ann", Membership("acme", Role.ADMIN), Membership(EVERYWHERE, Role.VIEWER))

        await people.accounts.change_tenant("acme", is_disabled=True, by=BY)
        assert [each.tenant for each in (await people.account(ann)).memberships] == [EVERYWHERE]
        await people.accounts.change_tenant("acme", is_disabled=False, by=BY)

        assert [each.tenant for each in (await people.account(ann)).memberships] == [EVERYWHERE, "acme"]

    @case
    async def test_members_are_listed_by_scope(self) -> None:
        people = self.people()
        for name in ("north", "south"):
            await people.tenant(name)
        await people.user("Bob", Membership("north", Role.VIEWER), Membership("south", Role.ADMIN))
        await people.user("ann", Membership("north", Role.OPERATOR))
        await people.admin()

        async def members(scope: Scope) -> list[tuple[str, str, str]]:
            found = await people.accounts.members(scope)
            return [(each.tenant, user.name, each.role.value) for user, each in found]

        north = [("north", "ann", "operator"), ("north", "Bob", "viewer")]
        south = [("south", "Bob", "admin")]
        assert await members(Scope(frozenset({"north"}))) == north
        assert await members(Scope(frozenset({"south", "north"}))) == north + south
        assert await members(EVERYTHING_OF_ALL) == [(EVERYWHERE, "root", "admin"), *north, *south]
        assert await members(NOTHING_AT_ALL) == []

    @case
    async def test_the_last_admin_of_the_instance_cannot_be_removed(self) -> None:
        people = self.people()
        root = await people.admin()
        ann = await people.user("ann", Membership(EVERYWHERE, Role.OPERATOR))

        async def refuses() -> None:
            with raises(IdentityConflict):
                await people.accounts.erase_user(root.id, by=BY)
            with raises(IdentityConflict):
                await people.accounts.remove_membership(root.id, EVERYWHERE, by=BY)
            with raises(IdentityConflict):
                await people.accounts.set_membership(root.id, Membership(EVERYWHERE, Role.VIEWER), by=BY)
            with raises(IdentityConflict):
                await people.accounts.change_user(root.id, UserChange(is_disabled=True), by=BY)

        await refuses()
        await people.accounts.set_membership(ann.id, Membership(EVERYWHERE, Role.ADMIN), by=BY)
        await people.accounts.change_user(ann.id, UserChange(is_disabled=True), by=BY)
        await refuses()
        await people.accounts.change_user(ann.id, UserChange(is_disabled=False), by=BY)
        await people.accounts.erase_user(root.id, by=BY)
        assert [each.role for each in (await people.account(ann)).memberships] == [Role.ADMIN]

    @case
    async def test_two_admins_that_remove_each_other_leave_one(self) -> None:
        stores = [self.people(), self.people()]
        admins = [await stores[0].admin("root"), await stores[0].admin("ann")]

        async def remove(people: People, turn: int) -> None:
            await people.accounts.remove_membership(admins[turn].id, EVERYWHERE, by=BY)

        answers = await asyncio.gather(remove(stores[0], 0), remove(stores[1], 1), return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["IdentityConflict", "NoneType"]
        left = await stores[0].accounts.members(EVERYTHING_OF_ALL)
        assert len(left) == 1
