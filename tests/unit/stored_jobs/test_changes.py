"""Changes of stored jobs: by their ids, and by records of them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskmq import Concurrency, RateLimit
from taskmq.errors import InvalidArguments, JobConflict, JobNotFound
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import JobState
from taskmq.operations.tenant_jobs import TenantJobs
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop


@run_by(in_shop)
async def test_a_job_is_changed_by_the_record_that_was_read(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, delay="1h")
    record = await shop.jobs.aget(job.id)

    changed = await shop.jobs.achange(record, priority=9, note="now")
    assert (changed.priority, changed.version) == (9, record.version + 1)
    assert changed == await shop.jobs.aget(job.id)
    held = await shop.jobs.ahold(changed)
    released = await shop.jobs.arelease(held)
    assert [held.state, released.state] == [JobState.HELD, JobState.SCHEDULED]
    await shop.jobs.aretry(released)

    assert await job.aresult(timeout=5) == 2


@run_by(in_shop)
async def test_an_outdated_record_is_read_again(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, delay="1h")
    record = await shop.jobs.aget(job.id)
    await shop.jobs.ahold(job.id)

    after = await shop.jobs.achange(record, delay="2h")

    assert (after.state, after.version) == (JobState.HELD, record.version + 2)
    with pytest.raises(JobConflict, match=f"has version {after.version}, not {record.version}"):
        await shop.jobs.acancel(record, version=record.version)
    assert await shop.jobs.aget(job.id) == after
    # By the record alone there would be nothing to release, and nothing to hold.
    released = await shop.jobs.arelease(record)
    assert (await shop.jobs.ahold(after)).version == released.version + 1


@run_by(in_shop)
async def test_a_listed_job_keeps_its_arguments_when_it_is_changed(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 21, delay="1h")
    (listed,) = (await shop.jobs.alist()).jobs
    assert listed.body == b""

    await shop.jobs.achange(listed, priority=9, delay="0s")
    copy = await shop.jobs.aclone(listed)

    assert [await job.aresult(timeout=5), await copy.aresult(timeout=5)] == [42, 42]


@run_by(in_shop)
async def test_a_job_that_is_changed_when_its_timer_is_overdue_still_runs(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, delay="10s")
    await shop.process.stop()
    await asyncio.sleep(11)

    # Faster than the timer of the scheduler in this process.
    another = shop.stage.start().app
    after = await another.jobs.achange(job.id, priority=9)
    assert after.state is JobState.SCHEDULED

    assert await another.job(job.id).aresult(timeout=60) == 2


@run_by(in_shop)
async def test_a_record_of_another_tenant_is_unknown_too(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, delay="1h", tenant="acme")
    record = await shop.jobs.aget(job.id)

    with pytest.raises(JobNotFound):
        await TenantJobs(shop.app, "globex", by="ann").cancel(record)

    assert await shop.jobs.aget(job.id) == record
    assert (await TenantJobs(shop.app, "acme", by="ann").cancel(record)).state is JobState.CANCELLED


@run_by(in_shop)
async def test_the_history_of_a_change_has_old_and_new_values_beside_its_note(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, delay="1h", priority=5)

    await shop.jobs.achange(job.id, priority=8, note="sooner")
    await shop.jobs.achange(job.id, priority=2)
    await shop.jobs.ahold(job.id, note="inventory")

    notes = [entry.note for entry in await shop.jobs.ahistory(job.id)]
    assert notes == ["priority 5 -> 8; sooner", "priority 8 -> 2", "inventory"]


@run_by(in_shop)
async def test_the_keys_of_limits_are_computed_with_the_arguments_of_a_stored_job(shop: Shop, /) -> None:
    def make_key(account: str) -> str:
        return account.upper()

    @shop.app.task(
        name="export",
        rate_limit=RateLimit("1/s", name="exports", key=make_key),
        concurrency=[Concurrency(1), Concurrency(2, name="accounts", key="account")],
    )
    async def export(account: str) -> None: ...

    async def read_limits(job_id: str) -> dict[str, str] | None:
        return decode_envelope((await shop.jobs.aget(job_id)).body).limits

    job = await shop.jobs.asubmit(export, "ann", delay="1h")
    assert await read_limits(job.id) == {"rate:exports": "ANN", "places:accounts": "ann"}

    await shop.jobs.achange(job.id, args=("bob",))
    copy = await shop.jobs.aclone(job.id, at=datetime.now(UTC) + timedelta(hours=1))
    other = await shop.jobs.aclone(job.id, kwargs={"account": "eve"}, at=datetime.now(UTC) + timedelta(hours=1))
    plain = await shop.jobs.asubmit("double", 1, delay="1h")

    for each in (job, copy):
        assert await read_limits(each.id) == {"rate:exports": "BOB", "places:accounts": "bob"}
    assert await read_limits(other.id) == {"rate:exports": "EVE", "places:accounts": "eve"}
    assert await read_limits(plain.id) is None
    with pytest.raises(InvalidArguments, match="rate_limit: key"):
        await shop.jobs.asubmit(export, "")
