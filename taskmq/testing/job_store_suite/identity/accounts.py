"""Tests of tenants and users."""

import asyncio
import uuid

from taskmq.contracts.identity import NewUser, UserChange
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import EVERYTHING_OF_ALL, EVERYWHERE, NOTHING_AT_ALL, Membership, Role, Scope
from taskmq.testing.job_store_suite.identity.kit import BY, IdentityCase, secret
from taskmq.testing.runner import case, raises


class AccountCases(IdentityCase):
    """Every guarantee of `AccountStore` about tenants and users."""

    @case
    async def test_every_store_lists_an_added_tenant(self) -> None:
        people, other = self.people(), self.people()
        before = await people.store.now_ms()

        added = await people.tenant("acme", description="makes anvils ☂")

        assert (added.name, added.description, added.disabled) == ("acme", "makes anvils ☂", None)
        assert added.created >= before
        assert await other.accounts.tenants(EVERYTHING_OF_ALL) == [added]

    @case
    async def test_tenants_are_listed_by_name_and_by_scope(self) -> None:
        people = self.people()
        for name in ("b", "a", "C", "a-b", "ab"):
            await people.tenant(name)

        async def names(scope: Scope) -> list[str]:
            return [tenant.name for tenant in await people.accounts.tenants(scope)]

        assert await names(EVERYTHING_OF_ALL) == ["C", "a", "a-b", "ab", "b"]
        assert await names(Scope(frozenset({"b", "ab", "other"}))) == ["ab", "b"]
        assert await names(NOTHING_AT_ALL) == []

    @case
    async def test_a_tenant_can_be_added_only_once(self) -> None:
        people, other = self.people(), self.people()
        await people.tenant("acme")

        with raises(IdentityConflict):
            await other.tenant("acme")
        assert await people.actions() == ["tenant.add"]

    @case
    async def test_a_tenant_that_already_has_jobs_can_be_added(self) -> None:
        driver, people = self.driver(), self.people()
        await driver.submit(tenant="acme")
        assert await people.accounts.tenants(EVERYTHING_OF_ALL) == []

        added = await people.tenant("acme")

        assert await people.accounts.tenants(EVERYTHING_OF_ALL) == [added]

    @case
    async def test_changing_a_tenant_keeps_the_omitted_fields(self) -> None:
        people = self.people()
        added = await people.tenant("acme", description="one")

        described = await people.accounts.change_tenant("acme", description="two", by=BY)
        disabled = await people.accounts.change_tenant("acme", is_disabled=True, by=BY)
        again = await people.accounts.change_tenant("acme", is_disabled=True, by=BY)
        enabled = await people.accounts.change_tenant("acme", is_disabled=False, by=BY)

        assert (described.description, described.disabled) == ("two", None)
        assert disabled.disabled is not None
        assert (again.description, again.disabled) == ("two", disabled.disabled)
        assert (enabled.description, enabled.disabled, enabled.created) == ("two", None, added.created)
        assert await people.accounts.tenants(EVERYTHING_OF_ALL) == [enabled]

    @case
    async def test_a_missing_tenant_is_neither_changed_nor_removed(self) -> None:
        people = self.people()

        for name in ("acme", "", "\0", "\ud800"):
            with raises(IdentityNotFound):
                await people.accounts.change_tenant(name, description="x", by=BY)
            with raises(IdentityNotFound):
                await people.accounts.remove_tenant(name, by=BY)

    @case
    async def test_removing_a_tenant_removes_its_roles_and_keeps_its_jobs(self) -> None:
        driver, people = self.driver(), self.people()
        job = await driver.submit(tenant="acme")
        await people.tenant("acme")
        ann = await people.user("ann", Membership("acme", Role.ADMIN))

        await people.accounts.remove_tenant("acme", by=BY)

        assert await people.accounts.tenants(EVERYTHING_OF_ALL) == []
        assert (await people.account(ann)).memberships == ()
        assert await driver.read(job) == job
        with raises(IdentityNotFound):
            await people.accounts.remove_tenant("acme", by=BY)
        await people.tenant("acme")
        assert (await people.account(ann)).memberships == ()

    @case
    async def test_an_added_user_is_found_by_id_and_by_name_in_any_case(self) -> None:
        people, other = self.people(), self.people()

        added = await people.user("Ann", email="ann@example.org", password_hash="$argon2id$x")

        account = await other.accounts.account(added.id)
        assert account is not None
        assert account.user == added
        assert (added.name, added.email, added.version, added.disabled) == ("Ann", "ann@example.org", 1, None)
        assert added.password_changed == added.created
        assert added.last_login is None
        for name in ("Ann", "ann", "ANN"):
            assert await other.accounts.account_named(name) == (account, "$argon2id$x")

    @case
    async def test_a_user_can_have_no_password(self) -> None:
        people = self.people()

        added = await people.user("ann")

        assert added.password_changed is None
        found = await people.accounts.account_named("ann")
        assert found is not None
        assert found[1] == ""

    @case
    async def test_unknown_users_are_not_found(self) -> None:
        people = self.people()
        await people.user("ann")

        for text in ("", "bob", "an", "ann ", "%", "\0", "\ud800", "x" * 10_000):
            assert await people.accounts.account(text) is None
            assert await people.accounts.account_named(text) is None

    @case
    async def test_a_name_belongs_to_one_user_in_any_case(self) -> None:
        people, other = self.people(), self.people()
        await people.user("ann")
        bob = await people.user("bob")

        with raises(IdentityConflict):
            await other.user("ANN")
        with raises(IdentityConflict):
            await other.accounts.change_user(bob.id, UserChange(name="Ann"), by=BY)
        assert (await other.account(bob)).user == bob
        renamed = await other.accounts.change_user(bob.id, UserChange(name="Bob"), by=BY)
        assert renamed.name == "Bob"

    @case
    async def test_only_one_of_many_concurrent_adds_of_a_name_succeeds(self) -> None:
        stores = [self.people() for _ in range(2)]

        answers = await asyncio.gather(
            *(stores[turn % 2].user("ann" if turn % 3 else "ANN") for turn in range(10)), return_exceptions=True
        )

        assert sum(not isinstance(answer, BaseException) for answer in answers) == 1
        assert sum(isinstance(answer, IdentityConflict) for answer in answers) == 9

    @case
    async def test_only_one_of_many_concurrent_first_admins_is_added(self) -> None:
        stores = [self.people() for _ in range(2)]

        async def begin(turn: int) -> None:
            new = NewUser(id=str(uuid.uuid4()), name=f"root{turn}", memberships=(Membership(EVERYWHERE, Role.ADMIN),))
            await stores[turn % 2].accounts.add_user(new, is_first=True, by=BY)

        answers = await asyncio.gather(*map(begin, range(10)), return_exceptions=True)

        assert sum(answer is None for answer in answers) == 1
        assert sum(isinstance(answer, IdentityConflict) for answer in answers) == 9
        assert len(await stores[0].accounts.users()) == 1

    @case
    async def test_users_are_listed_by_name_in_pages(self) -> None:
        people = self.people()
        for name in ("dave", "Ann", "bob", "a-b", "Zoe", "ab", "a.b"):
            await people.user(name)

        names: list[str] = []
        while page := await people.accounts.users(after=names[-1] if names else "", limit=3):
            names += [user.name for user in page]

        assert names == ["a-b", "a.b", "ab", "Ann", "bob", "dave", "Zoe"]

    @case
    async def test_changing_a_user_keeps_the_omitted_fields(self) -> None:
        people = self.people()
        ann = await people.user("ann", email="a@example.org", password_hash="one")

        changed = await people.accounts.change_user(ann.id, UserChange(email="b@example.org", version=1), by=BY)
        with raises(IdentityConflict):
            await people.accounts.change_user(ann.id, UserChange(email="c@example.org", version=1), by=BY)
        with raises(IdentityNotFound):
            await people.accounts.change_user(str(uuid.uuid4()), UserChange(email="c"), by=BY)

        assert (changed.version, changed.email, changed.name) == (2, "b@example.org", "ann")
        assert await people.accounts.account_named("ann") == (await people.account(changed), "one")

    @case
    async def test_a_new_password_ends_all_sessions_but_the_kept_one(self) -> None:
        people = self.people()
        ann, bob = await people.user("ann", password_hash="one"), await people.user("bob")
        key, others = secret(), [secret(), secret()]
        mine = await people.session(ann, key)
        for each in others:
            await people.session(ann, each)
        foreign = await people.session(bob)

        change = UserChange(password_hash="two", keep_session=mine.id)
        await people.accounts.change_user(ann.id, change, by=BY)

        assert [each.id for each in await people.credentials.sessions(ann.id)] == [mine.id]
        assert [each.id for each in await people.credentials.sessions(bob.id)] == [foreign.id]
        assert await people.credentials.find_session(key.digest) is not None
        assert [await people.credentials.find_session(each.digest) for each in others] == [None, None]
        found = await people.accounts.account_named("ann")
        assert found is not None
        assert found[1] == "two"

    @case
    async def test_a_change_can_revoke_all_tokens_of_the_user(self) -> None:
        people, other = self.people(), self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        keys = [secret() for _ in range(3)]
        for number, (user, key) in enumerate(zip((ann, ann, bob), keys, strict=True)):
            await people.token(user, key, name=f"t{number}")
        unsealed = await people.audit.count_unsealed()

        await people.accounts.change_user(ann.id, UserChange(password_hash="h"), by=BY)
        assert await other.credentials.find_token(keys[0].digest) is not None
        await people.accounts.change_user(ann.id, UserChange(password_hash="i", revokes_tokens=True), by=BY)

        assert [await other.credentials.find_token(key.digest) is None for key in keys] == [True, True, False]
        assert await other.credentials.tokens(ann.id) == []
        # Two passwords, and two tokens.
        assert await people.audit.count_unsealed() - unsealed == 4

    @case
    async def test_a_hash_is_renewed_only_while_the_password_is_unchanged(self) -> None:
        people = self.people()
        ann = await people.user("ann", password_hash="one")
        await people.session(ann)

        await people.accounts.rehash_password(ann.id, before="other", after="three")
        await people.accounts.rehash_password(ann.id, before="one", after="two")

        found = await people.accounts.account_named("ann")
        assert found is not None
        assert found[1] == "two"
        assert found[0].user.version == 1
        assert len(await people.credentials.sessions(ann.id)) == 1

    @case
    async def test_no_credential_of_a_disabled_user_is_accepted(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        keys = secret(), secret()
        await people.session(ann, keys[0])
        await people.token(ann, keys[1])

        disabled = await people.accounts.change_user(ann.id, UserChange(is_disabled=True), by=BY)

        assert disabled.disabled is not None
        assert await people.credentials.find_session(keys[0].digest) is None
        assert await people.credentials.find_token(keys[1].digest) is None
        await people.accounts.change_user(ann.id, UserChange(is_disabled=False), by=BY)
        assert await people.credentials.find_session(keys[0].digest) is None
        assert await people.credentials.find_token(keys[1].digest) is not None

    @case
    async def test_erasing_a_user_removes_all_their_data(self) -> None:
        people, other = self.people(), self.people()
        await people.tenant("acme")
        ann = await people.user("ann", Membership("acme", Role.ADMIN))
        keys = secret(), secret()
        await people.session(ann, keys[0])
        await people.token(ann, keys[1])

        await people.accounts.erase_user(ann.id, by=BY)

        assert await other.accounts.account(ann.id) is None
        assert await other.accounts.account_named("ann") is None
        assert await other.accounts.members(EVERYTHING_OF_ALL) == []
        assert await other.credentials.find_session(keys[0].digest) is None
        assert await other.credentials.find_token(keys[1].digest) is None
        assert await other.credentials.tokens() == []
        with raises(IdentityNotFound):
            await other.accounts.erase_user(ann.id, by=BY)
        assert (await other.user("ann")).id != ann.id
