"""Jobs that have ended and are retried: once, unless another run is asked for."""

import asyncio

import pytest

from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.errors import JobConflict
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.submission.kit import Shop, in_shop

_FAILED = JobFilter(states=frozenset({JobState.FAILED}))


async def _failed(shop: Shop) -> str:
    job = await shop.jobs.asubmit("end", "reject")
    await job.aoutcome(timeout=5)
    return job.id


@run_by(in_shop)
async def test_a_failed_job_and_its_retry_name_each_other(shop: Shop, /) -> None:
    failed = await _failed(shop)

    again = await shop.jobs.aretry(failed, by="ann", note="the disk is free")

    before, after = await shop.jobs.aget(failed), await shop.jobs.aget(again.id)
    assert after.detail is not None
    assert (before.retried_as, after.detail.retry_of) == (after.id, before.id)
    (entry,) = await shop.jobs.ahistory(failed)
    assert (entry.kind, entry.by, entry.note, entry.version) == ("retry", "ann", "the disk is free", before.version)
    await again.aoutcome(timeout=5)
    assert [job.id for job in (await shop.jobs.alist(_FAILED)).jobs] == [again.id]


@run_by(in_shop)
async def test_a_second_retry_is_refused_and_names_the_first(shop: Shop, /) -> None:
    failed = await _failed(shop)
    first = await shop.jobs.aretry(failed, new_id="again")

    with pytest.raises(JobConflict, match=rf"job {failed} was retried as job again, which is queued") as caught:
        await shop.jobs.aretry(failed)
    assert caught.value.state == "failed"
    # The same request once more.
    assert (await shop.jobs.aretry(failed, new_id="again")).id == first.id
    second = await shop.jobs.aretry(failed, again=True)

    made = {job.id for job in (await shop.jobs.alist()).jobs} - {failed}
    assert made == {(await shop.jobs.aget(first.id)).id, second.id}
    assert (await shop.jobs.aget(failed)).retried_as == second.id


@run_by(in_shop)
async def test_of_many_who_retry_at_the_same_time_one_does(shop: Shop, /) -> None:
    record = await shop.jobs.aget(await _failed(shop))

    answers = await asyncio.gather(*(shop.jobs.aretry(record) for _ in range(10)), return_exceptions=True)

    assert sum(isinstance(one, JobConflict) for one in answers) == 9
    assert await shop.jobs.acount() == 2


@run_by(in_shop)
async def test_a_retry_by_an_actor_is_in_the_audit_once(shop: Shop, /) -> None:
    ann = Actor(user_id="u1", user="ann", via="session")
    failed = await _failed(shop)

    again = await shop.jobs.aretry(failed, by=ann)
    with pytest.raises(JobConflict):
        await shop.jobs.aretry(failed, by=ann)

    page = await shop.stage.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="job."), limit=9)
    assert [(one.action, one.subject, again.id.encode() in (one.what or b"")) for one in page.entries] == [
        ("job.retry", failed, True)
    ]


@run_by(in_shop)
async def test_a_retry_needs_the_version_that_it_names(shop: Shop, /) -> None:
    record = await shop.jobs.aget(await _failed(shop))

    with pytest.raises(JobConflict, match=f"has version {record.version} and not 1"):
        await shop.jobs.aretry(record, version=1)
    await shop.jobs.aretry(record, version=record.version)

    assert await shop.jobs.acount() == 2
