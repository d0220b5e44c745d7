"""Queries of jobs: by a tenant's own id, and by filters as people write them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from inspect import getmembers, signature

import pytest

from taskmq import JobFilter
from taskmq.client.job_service import JobService
from taskmq.errors import InvalidFilter, InvalidOption, JobNotFound
from taskmq.model.states import JobState
from taskmq.stored_jobs import Jobs
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop


@run_by(in_shop)
async def test_a_job_is_found_by_its_tenant_and_the_id_that_its_submitter_chose(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("double", 1, job_id="render-1", tenant="acme", delay="1h")

    record = await shop.jobs.aget("render-1", tenant="acme")

    assert (record.tenant, record.key) == ("acme", "render-1")
    assert record == await shop.jobs.aget(job.id)
    assert (await shop.jobs.aexplain("render-1", tenant="acme")).reasons
    await shop.jobs.ahold(record)
    assert [each.kind for each in await shop.jobs.ahistory("render-1", tenant="acme")] == ["hold"]
    assert await shop.jobs.aattempts("render-1", tenant="acme") == []
    for tenant in (None, "globex"):
        with pytest.raises(JobNotFound, match="render-1"):
            await shop.jobs.aget("render-1", tenant=tenant)


@run_by(in_shop)
async def test_jobs_are_listed_and_counted_by_texts_and_by_filters(shop: Shop, /) -> None:
    await shop.jobs.asubmit("double", 1, delay="1h", tenant="acme")
    await shop.jobs.asubmit("double", 2, delay="3h", tenant="acme")
    await shop.jobs.asubmit("kept", 3, held=True)

    async def list_ids(which: JobFilter | str, tenant: str | None = None) -> list[str]:
        found = sorted(job.task for job in (await shop.jobs.alist(which, tenant=tenant)).jobs)
        assert await shop.jobs.acount(which, tenant=tenant) == len(found)
        return found

    assert await list_ids("") == ["double", "double", "kept"]
    assert await list_ids("status:held") == ["kept"]
    assert await list_ids(JobFilter(states=frozenset({JobState.HELD}))) == ["kept"]
    assert await list_ids("due:<+2h task:double") == ["double"]
    assert await list_ids("task:dou*", tenant="acme") == ["double", "double"]
    assert await list_ids("", tenant="") == ["kept"]
    assert await list_ids(JobFilter(tenant="acme", tasks=("kept",))) == []


@run_by(in_shop)
async def test_a_filter_that_cannot_be_read_is_refused(shop: Shop, /) -> None:
    with pytest.raises(InvalidFilter, match="failled"):
        await shop.jobs.alist("status:failled")
    with pytest.raises(InvalidOption, match="the filter names tenant 'acme'"):
        await shop.jobs.acount("tenant:acme", tenant="globex")


@run_by(in_shop)
async def test_a_job_is_found_by_its_tenant_and_the_stores_id_and_by_no_other_tenant(shop: Shop, /) -> None:
    record = await shop.jobs.aget((await shop.jobs.asubmit("double", 1, tenant="acme", delay="1h")).id)
    plain = await shop.jobs.aget((await shop.jobs.asubmit("double", 1, delay="1h")).id)

    assert (await shop.jobs.aget(record.id, tenant="acme")).id == record.id
    assert (await shop.jobs.aget(plain.id, tenant="")).id == plain.id
    for job_id, tenant in ((record.id, "globex"), (record.id, ""), (plain.id, "acme")):
        with pytest.raises(JobNotFound):
            await shop.jobs.aget(job_id, tenant=tenant)


@run_by(in_shop)
async def test_every_method_for_one_job_accepts_its_tenant(shop: Shop, /) -> None:
    jobs = shop.jobs
    for tenant in ("acme", "globex"):
        await jobs.asubmit("double", 1, job_id="render-1", tenant=tenant, delay="1h")

    await jobs.achange("render-1", tenant="acme", priority=7)
    await jobs.ahold("render-1", tenant="acme")
    held = await jobs.aget("render-1", tenant="acme")
    await jobs.arelease("render-1", tenant="acme")
    copy = await jobs.aclone("render-1", tenant="acme", at=datetime(2090, 1, 1, tzinfo=UTC))
    await jobs.acancel("render-1", tenant="acme", note="not needed")
    again = await jobs.aretry("render-1", tenant="acme", mode="resume")
    lines = [line async for line in _until_it_ends(shop, "render-1", tenant="acme")]

    assert (held.state, held.priority, again.id) == (JobState.HELD, 7, "@acme:render-1")
    assert (await jobs.aget(copy.id)).tenant == "acme"
    assert (await again.aresult(timeout=60), lines) == (2, [])
    other = await jobs.aget("render-1", tenant="globex")
    assert (other.state, other.version) == (JobState.SCHEDULED, 1)
    with pytest.raises(JobNotFound, match="tenant 'acme' has no job 'render-1'"):
        await jobs.ahold(other, tenant="acme")


async def _until_it_ends(shop: Shop, job_id: str, *, tenant: str) -> AsyncIterator[object]:
    async for line in shop.jobs.follow_logs(job_id, tenant=tenant):
        yield line


def test_all_of_app_jobs_accepts_a_tenant_in_sync_and_async_calls() -> None:
    about_the_state = {"list_waiting", "alist_waiting"}
    of_handles = {name for name, _ in getmembers(JobService, callable)}
    methods = {name: each for name, each in getmembers(Jobs, callable) if not name.startswith("_")}

    without = {name for name, each in methods.items() if "tenant" not in signature(each).parameters}

    # These accept options, including the tenant.
    assert without - of_handles - about_the_state == {"submit", "asubmit", "submit_by_name", "use_producer"}
