"""Tests of API tokens."""

import asyncio
import uuid

from taskmq.errors import IdentityConflict, IdentityNotFound, LimitReached
from taskmq.model.identity import Membership, Permission, Role
from taskmq.testing.job_store_suite.identity.kit import BY, HOUR, IdentityCase, secret
from taskmq.testing.runner import case, raises


class ApiTokenCases(IdentityCase):
    """Every guarantee of `CredentialStore` about tokens."""

    @case
    async def test_a_token_and_its_user_are_found_by_its_secret(self) -> None:
        people, other = self.people(), self.people()
        await people.tenant("acme")
        ann = await people.user("ann", Membership("acme", Role.SUBMITTER))
        key = secret()
        now = await people.store.now_ms()

        added = await people.token(
            ann,
            key,
            name="ci",
            scopes=frozenset({Permission.JOBS_READ, Permission.JOBS_SUBMIT}),
            tenants=frozenset({"acme", "other"}),
            tasks=("billing.*", "mail.?"),
            expires=now + HOUR,
        )

        found = await other.credentials.find_token(key.digest)
        assert found is not None
        token, account = found
        assert account == await other.account(ann)
        assert (token.id, token.user_id, token.name) == (added.id, ann.id, "ci")
        assert token.scopes == frozenset({Permission.JOBS_READ, Permission.JOBS_SUBMIT})
        assert token.tenants == frozenset({"acme", "other"})
        assert token.tasks == ("billing.*", "mail.?")
        assert (token.created, token.expires) == (added.created, now + HOUR)

    @case
    async def test_a_token_without_options_has_no_scopes_tenants_or_end(self) -> None:
        people = self.people()
        key = secret()

        added = await people.token(await people.user("ann"), key)

        found = await people.credentials.find_token(key.digest)
        assert found is not None
        for token in (added, found[0]):
            assert (token.scopes, token.tenants, token.tasks, token.expires) == (None, None, ("*",), None)

    @case
    async def test_a_token_with_an_empty_scope_list_has_no_scopes(self) -> None:
        people = self.people()
        key = secret()
        await people.token(await people.user("ann"), key, scopes=frozenset(), tenants=frozenset(), tasks=())

        found = await people.credentials.find_token(key.digest)

        assert found is not None
        assert (found[0].scopes, found[0].tenants, found[0].tasks) == (frozenset(), frozenset(), ())

    @case
    async def test_the_first_use_of_a_token_is_recorded(self) -> None:
        people = self.people()
        ann, key = await people.user("ann"), secret()
        await people.token(ann, key)
        assert [each.last_used for each in await people.credentials.tokens(ann.id)] == [None]

        await people.credentials.find_token(key.digest)

        (used,) = await people.credentials.tokens(ann.id)
        assert used.last_used is not None
        assert used.created <= used.last_used <= await people.store.now_ms()
        # At most once a minute: nothing is written here.
        await people.credentials.find_token(key.digest)
        assert await people.credentials.tokens(ann.id) == [used]

    @case
    async def test_an_expired_token_is_listed_and_rejected(self) -> None:
        people = self.people()
        ann, key = await people.user("ann"), secret()

        added = await people.token(ann, key, expires=await people.store.now_ms())

        assert await people.credentials.find_token(key.digest) is None
        assert await people.credentials.tokens(ann.id) == [added]

    @case
    async def test_no_other_secret_finds_a_token(self) -> None:
        people = self.people()
        key = secret()
        await people.token(await people.user("ann"), key)

        for digest in (secret().digest, b"", key.digest[:-1], key.digest + b"\0", key.text.encode()):
            assert await people.credentials.find_token(digest) is None
        assert await people.credentials.find_session(key.digest) is None

    @case
    async def test_a_user_has_one_token_of_a_name(self) -> None:
        people, other = self.people(), self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        await people.token(ann, name="ci")

        with raises(IdentityConflict):
            await other.token(ann, name="ci")
        await other.token(bob, name="ci")
        await other.token(ann, name="CI")

        assert {each.name for each in await people.credentials.tokens(ann.id)} == {"ci", "CI"}
        assert len(await people.credentials.tokens()) == 3

    @case
    async def test_the_number_of_valid_tokens_of_a_user_is_limited(self) -> None:
        people, other = self.people(), self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        made = await asyncio.gather(*(people.token(ann, name=f"t{number}") for number in range(99)))
        await people.token(ann, name="over", expires=1)

        tried = await asyncio.gather(
            *(store.token(ann, name=f"last{number}") for number, store in enumerate((people, other, people, other))),
            return_exceptions=True,
        )
        assert sum(isinstance(one, LimitReached) for one in tried) == 3
        await other.token(bob)
        await people.credentials.revoke_token(made[0].id, by=BY)
        await other.token(ann, name="again")

        assert len(await people.credentials.tokens(ann.id)) == 101

    @case
    async def test_a_token_requires_an_existing_user(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        await people.accounts.erase_user(ann.id, by=BY)

        with raises(IdentityNotFound):
            await people.token(ann)

    @case
    async def test_every_store_rejects_a_revoked_token(self) -> None:
        people, other = self.people(), self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        keys = secret(), secret()
        tokens = [await people.token(ann, key) for key in keys]

        with raises(IdentityNotFound):
            await other.credentials.revoke_token(tokens[0].id, user_id=bob.id, by=BY)
        await other.credentials.revoke_token(tokens[0].id, user_id=ann.id, by=BY)

        assert await people.credentials.find_token(keys[0].digest) is None
        assert await people.credentials.find_token(keys[1].digest) is not None
        assert {each.id for each in await people.credentials.tokens()} == {tokens[1].id}
        for gone in (tokens[0].id, str(uuid.uuid4()), ""):
            with raises(IdentityNotFound):
                await people.credentials.revoke_token(gone, by=BY)
