"""Tests of stored schedules: found, changed by compare-and-set, and removed."""

import asyncio

from msgspec.structs import replace

from taskmq.contracts.jobs import ScheduleChange
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.schedules.steps import APP, change_schedule, create_schedule, due_of, read
from taskmq.testing.runner import case


class ScheduleRows(JobStoreCase):
    """Every guarantee of `find`, `list`, `write` and `load`."""

    @case
    async def test_a_schedule_is_read_back_unchanged(self) -> None:
        schedules, others = self.store().schedules, self.store().schedules
        created = ScheduleChange(
            app=APP, name="nightly ☂", before=None, is_code=True, definition=b"\0what", record=b"\xffhow", next=7
        )

        assert await schedules.write([created]) == [True]

        missing, found = await others.find(APP, ["no", "nightly ☂"])
        assert missing is None
        assert found is not None
        assert (found.app, found.name, found.version, found.is_code) == (APP, "nightly ☂", 1, True)
        assert (found.definition, found.record, found.next) == (b"\0what", b"\xffhow", 7)
        assert await others.load([found.id, found.id + 1]) == [found]
        assert await others.find("another app", ["nightly ☂"]) == [None]

    @case
    async def test_schedules_are_listed_by_name_in_pages(self) -> None:
        schedules = self.store().schedules
        names = ["b", "a", "B", "ä", "a.b", "c" * 300]
        for name in names:
            await create_schedule(schedules, name)
        await schedules.write([ScheduleChange(app="other", name="a", before=None)])

        first = await schedules.list(APP, limit=4)
        rest = await schedules.list(APP, after=first[-1].name, limit=4)

        assert [row.name for row in first + rest] == sorted(names)

    @case
    async def test_schedules_defined_in_code_can_be_listed_separately(self) -> None:
        schedules = self.store().schedules
        for name in ("a", "c", "e"):
            await create_schedule(schedules, name, is_code=True)
        for name in ("b", "d", "f"):
            await create_schedule(schedules, name)

        found = await schedules.list(APP, after="a", limit=9, only_code=True)

        assert [row.name for row in found] == ["c", "e"]

    @case
    async def test_schedules_of_a_tenant_can_be_listed_separately(self) -> None:
        schedules = self.store().schedules
        tenants = ["acme", "acm", "acme2", "a:b", "100%", "ä"]
        names = [tenant_key(tenant, name) for tenant in tenants for name in ("nightly", "a", "ä")]
        for name in [*names, "nightly", "@", "@acme", "acme:a", "@:a"]:
            await create_schedule(schedules, name)

        for tenant in tenants:
            own = sorted(name for name in names if split_tenant_key(name)[0] == tenant)
            prefix = tenant_key(tenant, "")
            found = await schedules.list(APP, limit=9, prefix=prefix)
            assert [(row.name, row.tenant) for row in found] == [(name, tenant) for name in own]
            rest = await schedules.list(APP, after=own[0], limit=1, prefix=prefix)
            assert [row.name for row in rest] == own[1:2]
        assert len(await schedules.list(APP, limit=99)) == len(names) + 5

    @case
    async def test_schedules_can_be_listed_by_name_prefix(self) -> None:
        schedules = self.store().schedules
        for name in ("a", "ab", "abc", "abd", "ac", "b", "aB", "ä", "a%", "a_"):
            await create_schedule(schedules, name, is_code=name == "abd")

        async def names(prefix: str, *, after: str = "", only_code: bool = False) -> list[str]:
            rows = await schedules.list(APP, after=after, limit=9, prefix=prefix, only_code=only_code)
            return [row.name for row in rows]

        assert await names("ab") == ["ab", "abc", "abd"]
        assert await names("ab", after="a") == ["ab", "abc", "abd"]
        assert await names("ab", after="ab") == ["abc", "abd"]
        assert await names("ab", after="ac") == []
        assert await names("ab", only_code=True) == ["abd"]
        assert await names("a%") == ["a%"]
        assert await names("ä") == ["ä"]
        assert await names("x") == []

    @case
    async def test_a_change_applies_only_to_an_unchanged_schedule(self) -> None:
        schedules = self.store().schedules
        before = await create_schedule(schedules, "a", next=5)
        change = ScheduleChange(app=APP, name="a", before=before, definition=b"new", record=b"more", next=None)

        assert await schedules.write([change]) == [True]
        assert await schedules.write([change]) == [False]
        assert await schedules.write([replace(change, before=None)]) == [False]

        after = await read(schedules, "a")
        assert (after.id, after.version, after.definition, after.record) == (before.id, 2, b"new", b"more")
        assert await due_of(schedules, "a") == []

    @case
    async def test_changes_in_one_call_apply_independently(self) -> None:
        schedules = self.store().schedules
        stale = await create_schedule(schedules, "a")
        present = await change_schedule(schedules, stale, record=b"1")
        changes = [
            ScheduleChange(app=APP, name="a", before=stale, record=b"2"),
            ScheduleChange(app=APP, name="b", before=None),
            ScheduleChange(app=APP, name="c", before=present),
        ]

        assert await schedules.write(changes) == [False, True, False]

        assert [row.name for row in await schedules.list(APP, limit=9)] == ["a", "b"]
        assert (await read(schedules, "a")).record == b"1"

    @case
    async def test_removing_a_schedule_frees_its_name(self) -> None:
        schedules = self.store().schedules
        row = await create_schedule(schedules, "a", next=5)
        removal = ScheduleChange(app=APP, name="a", before=row, is_removed=True)

        assert await schedules.write([removal]) == [True]
        assert await schedules.write([removal]) == [False]

        assert await schedules.find(APP, ["a"]) == [None]
        assert await schedules.load([row.id]) == []
        assert await due_of(schedules, "a") == []
        again = await create_schedule(schedules, "a")
        assert again.id != row.id
        assert await schedules.write([removal]) == [False]

    @case
    async def test_only_one_of_many_concurrent_schedule_changes_applies(self) -> None:
        stores = [self.store().schedules for _ in range(4)]
        before = await create_schedule(stores[0], "a")
        changes = [ScheduleChange(app=APP, name="a", before=before, record=bytes([n])) for n in range(12)]

        done = await asyncio.gather(*(stores[n % 4].write([change]) for n, change in enumerate(changes)))

        assert sum(each == [True] for each in done) == 1
        assert (await read(stores[0], "a")).record == bytes([done.index([True])])
