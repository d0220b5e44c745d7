"""Retries of ended jobs: once, unless another run is requested."""

import asyncio

import pytest

from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.errors import InvalidOption, JobConflict
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop

_FAILED = JobFilter(states=frozenset({JobState.FAILED}))


async def _fail_job(shop: Shop) -> str:
    job = await shop.jobs.asubmit("end", "reject")
    await job.aoutcome(timeout=5)
    return job.id


@run_by(in_shop)
async def test_a_failed_job_and_its_retry_name_each_other(shop: Shop, /) -> None:
    failed = await _fail_job(shop)

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
    failed = await _fail_job(shop)
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
async def test_one_of_several_simultaneous_retries_succeeds(shop: Shop, /) -> None:
    record = await shop.jobs.aget(await _fail_job(shop))

    answers = await asyncio.gather(*(shop.jobs.aretry(record) for _ in range(10)), return_exceptions=True)

    assert sum(isinstance(one, JobConflict) for one in answers) == 9
    assert await shop.jobs.acount() == 2


@run_by(in_shop)
async def test_a_retry_by_an_actor_is_audited_once(shop: Shop, /) -> None:
    ann = Actor(user_id="u1", user="ann", via="session")
    failed = await _fail_job(shop)

    again = await shop.jobs.aretry(failed, by=ann)
    with pytest.raises(JobConflict):
        await shop.jobs.aretry(failed, by=ann)

    page = await shop.stage.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="job."), limit=9)
    assert [(one.action, one.subject, again.id.encode() in (one.what or b"")) for one in page.entries] == [
        ("job.retry", failed, True)
    ]


@run_by(in_shop)
async def test_a_retry_needs_the_version_that_it_names(shop: Shop, /) -> None:
    record = await shop.jobs.aget(await _fail_job(shop))

    with pytest.raises(JobConflict, match=f"has version {record.version}, not 1"):
        await shop.jobs.aretry(record, version=1)
    await shop.jobs.aretry(record, version=record.version)

    assert await shop.jobs.acount() == 2


@run_by(in_shop)
async def test_a_failed_job_continues_under_the_id_of_its_submitter(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("fail", "no", job_id="order-17")
    await job.aoutcome(timeout=60)
    failed = await shop.jobs.aget("order-17")
    assert (failed.state, failed.attempt) == (JobState.FAILED, 3)

    again = await shop.jobs.aretry("order-17", by="ann")

    assert again.id == job.id
    assert (await shop.jobs.aget("order-17")).state is JobState.QUEUED
    # Its old end does not answer waiters for the new one, and three further attempts are made.
    outcome = await again.aoutcome(timeout=60)
    ended = await shop.jobs.aget("order-17")
    assert (ended.state, ended.attempt, ended.id) == (JobState.FAILED, 6, failed.id)
    assert outcome.error is not None
    assert [one.attempt for one in await shop.jobs.aattempts("order-17")] == [1, 2, 3, 4, 5, 6]
    assert [(one.kind, one.by) for one in await shop.jobs.ahistory("order-17")] == [("retry", "ann")]
    assert await shop.jobs.acount() == 1


@run_by(in_shop)
async def test_a_job_continues_from_its_checkpoint(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("counted", 3, job_id="archive")
    await job.aoutcome(timeout=60)
    await shop.jobs.aretry("archive")

    assert await job.aresult(timeout=60) == [1, 2, 3]


@run_by(in_shop)
async def test_a_submission_with_the_id_of_a_failed_job_reports_the_failure(shop: Shop, /) -> None:
    first = await shop.jobs.asubmit("end", "reject", job_id="order-17")
    await first.aoutcome(timeout=5)

    second = await shop.jobs.asubmit("end", "reject", job_id="order-17")

    assert (first.existing, second.existing) == (None, JobState.FAILED)
    assert second.id == first.id
    assert (await shop.jobs.aget("order-17")).state is JobState.FAILED


@run_by(in_shop)
async def test_every_handle_of_an_existing_job_has_its_state(shop: Shop, /) -> None:
    kept = shop.app.tasks["kept"].options(job_id="order-17")
    made = [await kept.asend(1), await kept.asubmit(1)]
    repeated = [await shop.jobs.aclone("order-17", new_id="copy") for _ in range(2)]
    failed = await _fail_job(shop)
    retried = [await shop.jobs.aretry(failed, new_id="again") for _ in range(2)]

    for first, second in (made, repeated, retried):
        assert (first.id, first.existing) == (second.id, None)
        assert second.existing is not None
    assert shop.app.job("order-17").existing is None


@pytest.mark.parametrize(
    ("how", "is_named", "mode"),
    [("reject", True, "resume"), ("reject", False, "new"), ("done", True, "new"), ("done", False, "new")],
)
@run_by(in_shop)
async def test_a_job_is_resumed_or_repeated_as_appropriate(
    shop: Shop, /, how: str, is_named: bool, mode: str
) -> None:
    job = await shop.jobs.asubmit("end", how, job_id="order-17" if is_named else None)
    await job.aoutcome(timeout=5)

    again = await shop.jobs.aretry(job.id)

    assert ("resume" if again.id == job.id else "new") == mode


@run_by(in_shop)
async def test_a_job_that_cannot_be_resumed_is_unchanged(shop: Shop, /) -> None:
    done = await shop.jobs.asubmit("double", 1)
    await done.aresult(timeout=5)
    with pytest.raises(JobConflict, match="is succeeded, so that it cannot go on"):
        await shop.jobs.aretry(done.id, mode="resume")

    stopped = await shop.jobs.asubmit("sleep", 600, job_id="long")
    while (await shop.jobs.aget("long")).state is not JobState.RUNNING:
        await asyncio.sleep(0.1)
    await shop.jobs.acancel("long")
    await stopped.aoutcome(timeout=60)
    with pytest.raises(JobConflict, match="was cancelled while it ran"):
        await shop.jobs.aretry("long", mode="resume")
    with pytest.raises(InvalidOption, match="the job keeps its id"):
        await shop.jobs.aretry("long", mode="resume", new_id="other")
    assert (await shop.jobs.aretry("long")).id != "long"


@run_by(in_shop)
async def test_a_retried_graph_runs_again_in_order(shop: Shop, /) -> None:
    first = await shop.jobs.asubmit("end", "reject", job_id="first")
    second = await shop.jobs.asubmit("double", 1, job_id="second", depends_on=[first])
    third = await shop.jobs.asubmit("double", 2, depends_on=[second])
    await asyncio.gather(*(job.aoutcome(timeout=60) for job in (first, second, third)))

    for job in (second, third):
        with pytest.raises(JobConflict, match="retry that job first, or clone this one") as caught:
            await shop.jobs.aretry(job.id)
        assert caught.value.waits_for
    # With another call the first one may succeed; its dependents wait for the new one.
    again = await shop.jobs.aretry("first", mode="new")
    await shop.jobs.ahold(again.id)
    await shop.jobs.achange(again.id, args=["done"])
    assert again.reattached == 2
    states = [(await shop.jobs.aget(job.id)).state for job in (second, third)]
    assert states == [JobState.WAITING, JobState.WAITING]
    await shop.jobs.arelease(again.id)

    assert await asyncio.gather(*(job.aresult(timeout=60) for job in (again, second, third))) == ["done", 2, 4]


@run_by(in_shop)
async def test_dependents_of_a_resumed_job_run_after_its_next_attempt(shop: Shop, /) -> None:
    first = await shop.jobs.asubmit("counted", 2, job_id="first")
    second = await shop.jobs.asubmit("double", 1, depends_on=[first])
    cancelled = await shop.jobs.asubmit("double", 2, depends_on=[first])
    await cancelled.acancel()
    assert (await second.aoutcome(timeout=60)).error is not None

    again = await shop.jobs.aretry("first")

    assert again.reattached == 1
    assert await asyncio.gather(*(job.aresult(timeout=60) for job in (again, second))) == [[1, 2], 2]
    assert (await shop.jobs.aget(cancelled.id)).state is JobState.CANCELLED


@pytest.mark.parametrize("mode", ["resume", "new"])
@run_by(in_shop)
async def test_a_job_cancelled_while_waiting_still_needs_its_dependencies(shop: Shop, /, mode: RetryMode) -> None:
    first = await shop.jobs.asubmit("end", "reject", delay="10s")
    waiting = await shop.jobs.asubmit("double", 1, depends_on=[first])
    await waiting.acancel()
    await first.aoutcome(timeout=60)

    with pytest.raises(JobConflict, match="retry that job first, or clone this one"):
        await shop.jobs.aretry(waiting.id, mode=mode)
