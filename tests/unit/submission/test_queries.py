"""Jobs that are looked up: by a tenant's own id, and by filters as people write them."""

import pytest

from taskmq import JobFilter
from taskmq.errors import InvalidFilter, InvalidOption, JobNotFound
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.submission.kit import Shop, in_shop


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

    async def listed(which: JobFilter | str, tenant: str | None = None) -> list[str]:
        found = sorted(job.task for job in (await shop.jobs.alist(which, tenant=tenant)).jobs)
        assert await shop.jobs.acount(which, tenant=tenant) == len(found)
        return found

    assert await listed("") == ["double", "double", "kept"]
    assert await listed("status:held") == ["kept"]
    assert await listed(JobFilter(states=frozenset({JobState.HELD}))) == ["kept"]
    assert await listed("due:<+2h task:double") == ["double"]
    assert await listed("task:dou*", tenant="acme") == ["double", "double"]
    assert await listed("", tenant="") == ["kept"]
    assert await listed(JobFilter(tenant="acme", tasks=("kept",))) == []


@run_by(in_shop)
async def test_a_filter_that_cannot_be_read_is_refused(shop: Shop, /) -> None:
    with pytest.raises(InvalidFilter, match="failled"):
        await shop.jobs.alist("status:failled")
    with pytest.raises(InvalidOption, match="the filter is for tenant 'acme'"):
        await shop.jobs.acount("tenant:acme", tenant="globex")
