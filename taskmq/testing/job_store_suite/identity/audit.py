"""Tests of the audit and its chain."""

import asyncio
import uuid
from typing import Any

from msgspec.structs import replace

from taskmq.contracts.identity import AuditFilter, UserChange
from taskmq.contracts.jobs import JobUpdate
from taskmq.errors import IdentityConflict
from taskmq.model.identity import (
    EVERYTHING_OF_ALL,
    NOTHING_AT_ALL,
    AuditEntry,
    AuditRecord,
    ChainLink,
    Membership,
    Role,
    Scope,
    broken_link,
)
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.job_store_suite.identity.kit import BY, IdentityCase, People, secret
from taskmq.testing.runner import case, raises


def _entry(action: str = "queue.purge", **fields: Any) -> AuditEntry:
    given: dict[str, Any] = {"kind": "queue", "subject": "mail", **fields}
    return AuditEntry(action=action, **given)


async def _chain(people: People) -> list[AuditRecord]:
    found: list[AuditRecord] = []
    while page := await people.audit.chain(after=len(found), limit=3):
        found += page
    return found


class AuditCases(IdentityCase):
    """Every guarantee of `AuditStore`, and of the entries that account changes add."""

    @case
    async def test_an_entry_is_read_back_unchanged(self) -> None:
        people, other = self.people(), self.people()
        entry = BY.entry(
            "pool.change", kind="pool", subject="gpu ☂", tenant="acme", before={"size": 1}, after={"size": [2, None]}
        )
        before = await people.store.now_ms()

        await people.audit.add([entry])

        (record,) = await other.entries()
        assert record.entry() == entry
        assert record.at >= before
        assert (record.position, record.hash, record.is_erased) == (None, None, False)

    @case
    async def test_every_account_change_is_audited_with_its_author(self) -> None:
        people = self.people()
        await people.tenant("acme", description="one")
        await people.accounts.change_tenant("acme", description="two", by=BY)
        ann = await people.user("ann", Membership("acme", Role.VIEWER), password_hash="secret hash")
        await people.accounts.set_membership(ann.id, Membership("acme", Role.ADMIN), by=BY)
        await people.accounts.change_user(ann.id, UserChange(email="a@b.c", password_hash="other hash"), by=BY)
        session, token = await people.session(ann), await people.token(ann, name="ci")
        await people.credentials.end_session(session.id, by=BY)
        await people.credentials.revoke_token(token.id, by=BY)
        await people.accounts.remove_membership(ann.id, "acme", by=BY)
        await people.accounts.remove_tenant("acme", by=BY)

        entries = [record.entry() for record in await people.entries()]

        assert [(each.action, each.kind, each.subject, each.tenant) for each in entries] == [
            ("tenant.add", "tenant", "acme", "acme"),
            ("tenant.change", "tenant", "acme", "acme"),
            ("user.add", "user", ann.id, ""),
            ("role.set", "user", ann.id, "acme"),
            ("role.set", "user", ann.id, "acme"),
            ("user.change", "user", ann.id, ""),
            ("user.password", "user", ann.id, ""),
            ("session.begin", "session", session.id, ""),
            ("token.add", "token", token.id, ""),
            ("session.end", "session", session.id, ""),
            ("token.revoke", "token", token.id, ""),
            ("role.remove", "user", ann.id, "acme"),
            ("tenant.remove", "tenant", "acme", "acme"),
        ]
        for each in entries:
            assert (each.user_id, each.user, each.via, each.credential) == ("u-1", "root ☂", "session", "s-1")
            assert (each.address, each.request_id, each.note) == ("192.0.2.7", "r-1", "why")
            assert "hash" not in f"{each.before} {each.after}"
        assert entries[1].before == {"description": "one", "is_disabled": False}
        assert entries[1].after == {"description": "two", "is_disabled": False}
        assert entries[4].before == {"tenant": "acme", "role": "viewer", "tasks": ["*"]}
        assert entries[4].after == {"tenant": "acme", "role": "admin", "tasks": ["*"]}
        assert entries[5].after == {"name": "ann", "email": "a@b.c", "is_disabled": False}

    @case
    async def test_a_rejected_change_leaves_no_entry(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        before = await people.actions()

        with raises(IdentityConflict):
            await people.user("ann")
        with raises(IdentityConflict):
            await people.accounts.change_user(ann.id, UserChange(email="x", version=7), by=BY)
        with raises(IdentityConflict):
            await people.token(ann, name="ci")
            await people.token(ann, name="ci")

        assert await people.actions() == [*before, "token.add"]

    @case
    async def test_entries_are_listed_newest_first_in_pages(self) -> None:
        people = self.people()
        for turn in range(7):
            await people.audit.add([_entry(subject=f"q{turn}")])

        found: list[str] = []
        after: int | None = None
        while True:
            page = await people.audit.entries(EVERYTHING_OF_ALL, AuditFilter(), after=after, limit=3)
            found += [each.subject for each in page.entries]
            if (after := page.after) is None:
                break

        assert found == [f"q{turn}" for turn in reversed(range(7))]

    @case
    async def test_entries_are_filtered_by_their_fields(self) -> None:
        people = self.people()
        await people.audit.add(
            [
                _entry("queue.purge", subject="a", user_id="u1"),
                _entry("queue.pause", subject="b", user_id="u2"),
                _entry("queued", subject="a", kind="other", user_id="u1"),
            ]
        )
        first = (await people.entries())[0]

        async def count(**which: object) -> int:
            page = await people.audit.entries(EVERYTHING_OF_ALL, AuditFilter(**which))  # type: ignore[arg-type]
            return len(page.entries)

        assert await count() == 3
        assert await count(action="queue.") == 2
        assert await count(action="queue.purge") == 1
        assert await count(action="%") == 0
        assert await count(user_id="u1") == 2
        assert await count(kind="queue", subject="a") == 1
        assert await count(since=first.at) == 3
        assert await count(until=first.at) == 0
        assert await count(user_id="u1", kind="other", since=0, until=first.at + 86_400_000) == 1

    @case
    async def test_a_scope_hides_entries_of_other_tenants(self) -> None:
        people = self.people()
        await people.audit.add([_entry(tenant="north"), _entry(tenant="south"), _entry(tenant="")])

        async def tenants(scope: Scope) -> list[str]:
            return [each.tenant for each in (await people.audit.entries(scope, AuditFilter())).entries]

        assert sorted(await tenants(EVERYTHING_OF_ALL)) == ["", "north", "south"]
        assert await tenants(Scope(frozenset({"north"}))) == ["north"]
        assert sorted(await tenants(Scope(frozenset({"north", "south", "other"})))) == ["north", "south"]
        assert await tenants(NOTHING_AT_ALL) == []

    @case
    async def test_sealed_entries_form_an_unbroken_chain(self) -> None:
        people, other = self.people(), self.people()
        assert await people.audit.head() == ChainLink()
        assert await people.audit.seal() == 0

        for turn in range(3):
            await people.audit.add([_entry(subject=f"{turn}-{each}") for each in range(4)])
            assert await people.audit.count_unsealed() == 4
            assert await other.audit.seal(limit=3) == 3
            assert await people.audit.seal() == 1
            assert await people.audit.count_unsealed() == 0

        chain = await _chain(other)
        assert [each.position for each in chain] == list(range(1, 13))
        assert broken_link(ChainLink(), chain) == ""
        head = await other.audit.head()
        assert (head.position, head.hash) == (12, chain[-1].hash)

    @case
    async def test_concurrent_sealers_give_each_entry_one_position(self) -> None:
        stores = [self.people() for _ in range(2)]
        await stores[0].audit.add([_entry(subject=f"{each}") for each in range(20)])

        sealed = await asyncio.gather(*(stores[turn % 2].audit.seal(limit=7) for turn in range(6)))

        assert sum(sealed) == 20
        chain = await _chain(stores[0])
        assert sorted(each.subject for each in chain) == sorted(f"{each}" for each in range(20))
        assert broken_link(ChainLink(), chain) == ""

    @case
    async def test_erasing_a_person_does_not_break_the_chain(self) -> None:
        people, other = self.people(), self.people()
        await people.admin()
        ann = await people.user("ann", email="ann@example.org")
        key = secret()
        await people.session(ann, key)
        mine = AuditEntry(
            action="queue.purge", kind="queue", subject="q", user_id=ann.id, user="ann", address="192.0.2.9"
        )
        await people.audit.add([mine, _entry(user_id="u-2", user="bob")])
        await people.audit.seal()
        head = await people.audit.head()

        await other.accounts.erase_user(ann.id, by=BY)
        await other.audit.seal()

        chain = await _chain(people)
        assert broken_link(ChainLink(), chain) == ""
        assert chain[head.position - 1].hash == head.hash
        texts = " ".join(f"{each.who!r} {each.what!r}" for each in chain)
        assert "192.0.2.9" not in texts
        assert "ann@example.org" not in texts
        purges = {each.entry().user for each in chain if each.action == "queue.purge"}
        assert purges == {"", "bob"}
        erased = next(each for each in chain if each.action == "user.erase")
        assert erased.subject == ann.id
        assert erased.entry().user == "root ☂"

    @case
    async def test_a_job_change_and_its_entry_are_committed_together(self) -> None:
        people = self.people()
        driver = JobDriver(people.store)
        job = await driver.submit(tenant="acme")
        entry = BY.entry("job.cancel", kind="job", subject=job.id, tenant="acme", before={"state": "queued"})
        update = JobUpdate(
            id=job.id,
            before=JobState.QUEUED,
            version=job.version,
            after=JobState.CANCELLED,
            kind="cancel",
            audit=entry,
        )

        assert await people.store.update(replace(update, version=job.version + 1)) is None
        assert await people.entries() == []
        assert await people.store.update(update) is not None

        assert [record.entry() for record in await people.entries()] == [entry]

    @case
    async def test_entries_survive_their_store_closing(self) -> None:
        people, other = self.people(), self.people()
        note = str(uuid.uuid4())
        await people.audit.add([_entry(note=note)])

        await people.store.aclose()

        assert [each.entry().note for each in await other.entries()] == [note]
