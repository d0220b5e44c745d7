"""Tests of bulk operations."""

from msgspec.structs import replace

from taskmq.contracts.identity import AuditFilter
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditEntry
from taskmq.model.jobs.bulks import Bulk, BulkRefused
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.runner import case


def _bulk(number: int, tenant: str | None = "acme", *, due: int = 0) -> Bulk:
    return Bulk(
        id=f"bulk-{number}", tenant=tenant, action="cancel", filter="größe ☂", due=due, tasks=(("*",), ("a",))
    )


class BulkCases(JobStoreCase):
    """Every guarantee of `BulkStore`."""

    @case
    async def test_a_stored_bulk_can_be_read_by_every_process(self) -> None:
        store, other = self.store(), self.store()

        await store.bulks.add(_bulk(1))
        await other.bulks.add(replace(_bulk(1), filter="another"))

        assert await other.bulks.get("bulk-1") == replace(_bulk(1), version=1)
        for unknown in ("bulk-2", "", "a\0b", "\ud800"):
            assert await store.bulks.get(unknown) is None

    @case
    async def test_a_tenant_has_one_bulk_per_key(self) -> None:
        store, other = self.store(), self.store()
        entry = AuditEntry(action="bulk.begin", kind="bulk", subject="bulk-1", tenant="acme")
        keyed = replace(_bulk(1), key="größe", fingerprint="f")

        first = await store.bulks.add(keyed, audit=entry)
        again = await other.bulks.add(replace(keyed, id="bulk-2", fingerprint="g"), audit=entry)
        elsewhere = [
            await store.bulks.add(replace(keyed, id=f"bulk-{number}", tenant=tenant))
            for number, tenant in ((3, "other"), (4, ""), (5, None))
        ]
        without = [await other.bulks.add(_bulk(number)) for number in (6, 7)]

        assert (first, again) == (replace(keyed, version=1), first)
        assert [bulk.id for bulk in elsewhere + without] == ["bulk-3", "bulk-4", "bulk-5", "bulk-6", "bulk-7"]
        assert await store.bulks.get("bulk-2") is None
        page = await store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="bulk."), limit=10)
        assert len(page.entries) == 1

    @case
    async def test_a_key_is_free_once_its_bulk_is_deleted(self) -> None:
        store = self.store()
        await store.bulks.add(replace(_bulk(1), key="k", state="done", ended=50))

        await store.bulks.forget(before=100)

        assert (await store.bulks.add(replace(_bulk(2), key="k"))).id == "bulk-2"

    @case
    async def test_only_one_of_many_concurrent_writes_to_a_bulk_applies(self) -> None:
        store, other = self.store(), self.store()
        await store.bulks.add(_bulk(1))
        found = await other.bulks.get("bulk-1")
        assert found is not None

        first = await store.bulks.write(replace(found, holder="a", done=5, refusals=(BulkRefused("j", "E", "d"),)))
        second = await other.bulks.write(replace(found, holder="b"))

        assert first is not None
        assert (first.holder, first.version, second) == ("a", 2, None)
        assert await other.bulks.get("bulk-1") == first
        assert await store.bulks.write(_bulk(2)) is None

    @case
    async def test_bulks_are_listed_by_tenant_newest_first_in_pages(self) -> None:
        store = self.store()
        for number, tenant in enumerate(("acme", "other", "acme", "", None, "acme")):
            await store.bulks.add(_bulk(number, tenant))

        async def ids(tenant: str | None, after: str | None = None, limit: int = 50) -> list[str]:
            return [bulk.id for bulk in await store.bulks.page(tenant, after=after, limit=limit)]

        assert await ids("acme") == ["bulk-5", "bulk-2", "bulk-0"]
        assert await ids("acme", limit=1) == ["bulk-5"]
        assert await ids("acme", after="bulk-5") == ["bulk-2", "bulk-0"]
        assert await ids("") == ["bulk-3"]
        assert await ids(None, after="bulk-2") == ["bulk-1", "bulk-0"]
        assert await ids("acme", after="a\0b") == []

    @case
    async def test_running_bulks_are_found_in_order_of_due_time(self) -> None:
        store = self.store()
        for number, due in enumerate((30, 10, 20)):
            await store.bulks.add(_bulk(number, due=due))
        found = await store.bulks.get("bulk-1")
        assert found is not None
        await store.bulks.write(replace(found, state="done", ended=50))

        assert [bulk.id for bulk in await store.bulks.open()] == ["bulk-2", "bulk-0"]
        assert [bulk.id for bulk in await store.bulks.open(limit=1)] == ["bulk-2"]

    @case
    async def test_old_ended_bulks_are_deleted_and_running_ones_kept(self) -> None:
        store = self.store()
        await store.bulks.add(_bulk(1))
        for number, ended in ((2, 50), (3, 100)):
            await store.bulks.add(replace(_bulk(number), state="aborted", ended=ended))

        await store.bulks.forget(before=100)

        assert [bulk.id for bulk in await store.bulks.page(None)] == ["bulk-3", "bulk-1"]

    @case
    async def test_the_audit_entry_is_written_only_with_its_change(self) -> None:
        store = self.store()
        entry = AuditEntry(action="bulk.begin", kind="bulk", subject="bulk-1", tenant="acme")

        await store.bulks.add(_bulk(1), audit=entry)
        await store.bulks.add(_bulk(1), audit=entry)
        await store.bulks.write(_bulk(1), audit=replace(entry, action="bulk.end"))

        page = await store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="bulk."), limit=10)
        assert [record.action for record in page.entries] == ["bulk.begin"]
