"""Jobs that wait for others, from `submit` to their end: an app, its scheduler and a worker."""

from typing import Any

import pytest

from taskmq import Job
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop


@run_by(in_shop)
async def test_a_job_runs_once_its_dependencies_have_succeeded(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("double", 1)
    second: Job[Any] = await shop.jobs.asubmit("sleep", 30, job_id="second")
    third: Job[Any] = await shop.jobs.asubmit("double", 3, depends_on=[first, "second"])
    assert await third.astate() is JobState.WAITING
    explained = await shop.jobs.aexplain(third.id)
    assert f"it waits for job {second.id} of task sleep to be succeeded" in " ".join(explained.reasons)

    assert await third.aresult(timeout=60) == 6

    record = await shop.jobs.aget(third.id)
    sleeper = await shop.jobs.aget("second")
    assert record.started is not None
    assert sleeper.finished is not None
    assert record.started >= sleeper.finished
    assert record.detail is not None
    assert [each.id for each in record.detail.depends_on] == [first.id, sleeper.id]


@run_by(in_shop)
async def test_a_failure_ends_dependents_on_success_and_starts_dependents_on_failure(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("end", "reject", delay="5s")
    behind: Job[Any] = await shop.jobs.asubmit("double", 1, depends_on=[first])
    further: Job[Any] = await shop.jobs.asubmit("double", 2, depends_on=[behind])
    after: Job[Any] = await shop.jobs.asubmit("double", 3, depends_on=[(first, "failed")])
    anyway: Job[Any] = await shop.jobs.asubmit("double", 4, depends_on=[(further, "ended")])
    needless: Job[Any] = await shop.jobs.asubmit("double", 5, depends_on=[(anyway, "failed")])

    assert await after.aresult(timeout=60) == 6
    assert await anyway.aresult(timeout=60) == 8

    with pytest.raises(Exception, match=f"job {first.id} was to be succeeded, and is failed"):
        await behind.aresult(timeout=60)
    assert await further.astate() is JobState.UPSTREAM_FAILED
    with pytest.raises(Exception, match="skipped"):
        await needless.aresult(timeout=60)
    late: Job[Any] = await shop.jobs.asubmit("double", 1, depends_on=[first])
    with pytest.raises(Exception, match="was to be succeeded"):
        await late.aresult(timeout=60)


@run_by(in_shop)
async def test_a_clone_does_not_wait_and_many_may_wait_for_one(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("double", 1, delay="1h")
    many: list[Job[Any]] = await shop.jobs.asubmit_many("double", [(n,) for n in range(20)], depends_on=[first])
    assert {await job.astate() for job in many} == {JobState.WAITING}
    clone = await shop.jobs.aclone(many[3].id)
    assert await clone.aresult(timeout=60) == 6

    await shop.jobs.aretry(first.id)

    assert [await job.aresult(timeout=60) for job in many] == [2 * n for n in range(20)]


@run_by(in_shop)
async def test_a_cancelled_job_ends_its_dependents_and_a_held_one_keeps_them_waiting(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("double", 1, delay="1h")
    behind: Job[Any] = await shop.jobs.asubmit("double", 2, depends_on=[first])
    held: Job[Any] = await shop.jobs.asubmit("double", 3, held=True, depends_on=[(first, "ended")])
    assert (await shop.jobs.arelease(held.id)).state is JobState.WAITING
    await shop.jobs.ahold(held.id)
    assert "it waits for job" in (await shop.jobs.aexplain(held.id)).reasons[1]
    with pytest.raises(JobConflict, match="waits for other jobs"):
        await shop.jobs.aretry(behind.id)

    await shop.jobs.acancel(first.id)

    with pytest.raises(Exception, match="and is cancelled"):
        await behind.aresult(timeout=60)
    assert (await shop.jobs.arelease(held.id)).state in (JobState.QUEUED, JobState.DISPATCHED)
    assert await held.aresult(timeout=60) == 6


@run_by(in_shop)
async def test_a_dependency_must_exist_and_be_well_formed(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("double", 1, tenant="acme", job_id="first")

    async def submit(*depends_on: Any, **options: Any) -> None:
        await shop.jobs.asubmit("double", 1, depends_on=depends_on, **options)

    with pytest.raises(JobNotFound, match="no job 'other'"):
        await submit("other")
    with pytest.raises(JobNotFound, match="this tenant has no job"):
        await submit(first)
    with pytest.raises(JobNotFound):
        await submit("self", job_id="self")
    with pytest.raises(InvalidOption, match="twice"):
        await submit(first, "@acme:first", tenant="acme")
    with pytest.raises(InvalidOption, match="must be a job, an id"):
        await submit((first, "done"))
    with pytest.raises(InvalidOption, match="must be a job, an id"):
        await submit(7)
    with pytest.raises(InvalidOption, match="at most 1,000"):
        await submit(*["first"] * 1_001)
    with pytest.raises(InvalidOption, match="put the job into a list"):
        await shop.jobs.asubmit("double", 1, depends_on="first")
    await submit("@acme:first", tenant="acme", job_id="mine")
    await submit("@acme:first", tenant="acme", job_id="mine")
    with pytest.raises(JobConflict):
        await submit(tenant="acme", job_id="mine")
