"""Tests of browser sessions."""

import uuid

from taskmq.contracts.identity import NewBrowserSession
from taskmq.errors import IdentityNotFound
from taskmq.model.identity import Membership, Role
from taskmq.testing.job_store_suite.identity.kit import BY, HOUR, IdentityCase, secret
from taskmq.testing.runner import case, raises


class SessionCases(IdentityCase):
    """Every guarantee of `CredentialStore` about sessions."""

    @case
    async def test_a_session_and_its_user_are_found_by_its_secret(self) -> None:
        people, other = self.people(), self.people()
        await people.tenant("acme")
        ann = await people.user("ann", Membership("acme", Role.OPERATOR))
        key = secret()

        begun = await people.session(ann, key, address="192.0.2.1", agent="Browser ☂")

        found = await other.credentials.find_session(key.digest)
        assert found is not None
        assert found == (begun, await other.account(ann))
        assert begun.ends == begun.created + 2 * HOUR
        assert (begun.user_id, begun.address, begun.agent) == (ann.id, "192.0.2.1", "Browser ☂")
        assert found[1].user.last_login == begun.created

    @case
    async def test_no_other_secret_finds_a_session(self) -> None:
        people = self.people()
        key = secret()
        await people.session(await people.user("ann"), key)

        for digest in (secret().digest, b"", key.digest[:-1], key.digest + b"\0", key.text.encode()):
            assert await people.credentials.find_session(digest) is None
        assert await people.credentials.find_token(key.digest) is None

    @case
    async def test_an_idle_or_expired_session_is_not_found(self) -> None:
        people = self.people()
        ann = await people.user("ann")

        for times in ({"idle_ms": 0}, {"longest_ms": 0}):
            key = secret()
            over = await people.session(ann, key, **times)
            assert await people.credentials.find_session(key.digest) is None
            assert not await people.credentials.rotate_session(key.digest, secret().digest)
            with raises(IdentityNotFound):
                await people.credentials.end_session(over.id, by=BY)
        assert await people.credentials.sessions(ann.id) == []

    @case
    async def test_a_login_ends_the_session_it_replaces(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        first, second = secret(), secret()
        await people.session(ann, first)

        session = NewBrowserSession(
            id=str(uuid.uuid4()), user_id=ann.id, digest=second.digest, idle_ms=HOUR, longest_ms=HOUR
        )
        await people.credentials.add_session(session, by=BY, replaces=first.digest)

        assert await people.credentials.find_session(first.digest) is None
        assert await people.credentials.find_session(second.digest) is not None

    @case
    async def test_a_session_requires_an_existing_user(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        await people.accounts.erase_user(ann.id, by=BY)

        with raises(IdentityNotFound):
            await people.session(ann)

    @case
    async def test_a_rotated_session_is_valid_only_under_its_new_secret(self) -> None:
        people, other = self.people(), self.people()
        before, after = secret(), secret()
        begun = await people.session(await people.user("ann"), before)

        assert await people.credentials.rotate_session(before.digest, after.digest)

        assert await other.credentials.find_session(before.digest) is None
        found = await other.credentials.find_session(after.digest)
        assert found is not None
        assert (found[0].id, found[0].ends) == (begun.id, begun.ends)
        assert not await other.credentials.rotate_session(before.digest, secret().digest)

    @case
    async def test_the_sessions_of_a_user_are_listed_and_ended_one_by_one(self) -> None:
        people, other = self.people(), self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        keys = [secret() for _ in range(3)]
        mine = [await people.session(ann, key) for key in keys]
        await people.session(bob)

        await other.credentials.end_session(mine[1].id, by=BY)

        assert {each.id for each in await people.credentials.sessions(ann.id)} == {mine[0].id, mine[2].id}
        found = [await people.credentials.find_session(key.digest) for key in keys]
        assert [each is not None for each in found] == [True, False, True]
        with raises(IdentityNotFound):
            await people.credentials.end_session(mine[1].id, by=BY)

    @case
    async def test_a_user_cannot_end_the_session_of_another_user(self) -> None:
        people = self.people()
        ann, bob = await people.user("ann"), await people.user("bob")
        session = await people.session(ann)

        with raises(IdentityNotFound):
            await people.credentials.end_session(session.id, user_id=bob.id, by=BY)
        await people.credentials.end_session(session.id, user_id=ann.id, by=BY)

        assert await people.credentials.sessions(ann.id) == []
