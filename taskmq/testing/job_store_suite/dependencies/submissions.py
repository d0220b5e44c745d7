"""Tests of submitting jobs with dependencies, and of operators' changes to them."""

from collections.abc import Sequence

from msgspec.structs import replace

from taskmq.contracts.jobs import DependencyRefusal, JobDetail, NewJob, Submitted
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, after, new_id
from taskmq.testing.job_store_suite.uniqueness.submissions import unique
from taskmq.testing.runner import case

_STRANGERS: Sequence[str] = ("018f0000-0000-7000-8000-000000000001", "order-17", "")


def refusal_of(job: NewJob, upstream: str, reason: str = "unknown") -> Submitted:
    """Return the answer to a submission that this job's state refuses."""
    refusal = DependencyRefusal(upstream, "cycle" if reason == "cycle" else "unknown")
    return Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)


class WaitingJobs(JobStoreCase):
    """Guarantees of `submit` and `update` for jobs with `depends_on`."""

    @case
    async def test_texts_the_database_cannot_store_do_not_affect_other_jobs(self) -> None:
        driver = self.driver()
        first = await driver.submit()
        detail = replace(after(first), description="a\ud800b", preemptible=True)

        job = await driver.submit(detail=detail)

        assert job.detail is not None
        assert (job.detail.depends_on, job.detail.preemptible) == (detail.depends_on, True)
        assert job.detail.description in ("a\ud800b", "a\\ud800b")

    @case
    async def test_a_job_waits_for_an_unfinished_job_in_any_state(self) -> None:
        driver = self.driver()

        for state in JobState:
            if state in TERMINAL or state is JobState.UNKNOWN:
                continue
            first = await driver.make(state)
            job = await driver.submit(queue=f"behind {state}", detail=after(first))

            assert (job.state, job.version) == (JobState.WAITING, 1), state
            assert job.detail == after(first)
            assert await driver.store.unmet(job.id) == [JobDependency(first.id)]
            assert await driver.lanes(job.queue) == []
            assert await driver.state(first) is state

    @case
    async def test_a_job_does_not_wait_for_dependencies_already_met(self) -> None:
        driver = self.driver()
        done, failed = await driver.make(JobState.SUCCEEDED), await driver.make(JobState.FAILED)
        both = (JobDependency(done.id), JobDependency(failed.id, "failed"))

        now = await driver.submit(queue="now", detail=JobDetail(depends_on=both))
        soon = await driver.submit(queue="soon", due=HOUR, detail=after(failed, condition="ended"))

        assert (now.state, soon.state) == (JobState.QUEUED, JobState.SCHEDULED)
        assert await driver.store.unmet(now.id) == []
        assert [lane.queue for lane in await driver.lanes("now")] == ["now"]

    @case
    async def test_an_ended_job_is_found_even_if_its_id_comes_from_a_wrong_clock(self) -> None:
        driver = self.driver()
        now = await driver.store.now_ms()

        for hours in (72, -72):
            done = await driver.make(JobState.SUCCEEDED, id=new_id(now + hours * HOUR))

            job = await driver.submit(detail=after(done))

            assert job.state is JobState.QUEUED, hours

    @case
    async def test_a_job_with_an_impossible_dependency_waits_until_it_is_settled(self) -> None:
        driver = self.driver()
        failed, other = await driver.make(JobState.FAILED), await driver.submit(queue="other")

        job = await driver.submit(detail=after(failed, other))
        assert job.state is JobState.WAITING
        await driver.release()

        ended = await driver.read(job)
        assert ended.state is JobState.UPSTREAM_FAILED
        assert ended.error is not None
        assert ended.error.message == f"job {failed.id} was to be succeeded, and is failed"
        assert await driver.store.unmet(job.id) == []

    @case
    async def test_jobs_in_one_call_can_depend_on_each_other_in_any_order(self) -> None:
        driver = self.driver()
        first = await driver.new()
        second = await driver.new(detail=after(first))
        third = await driver.new(detail=after(first, second))

        answers = await driver.store.submit([third, first, second])

        assert [answer.state for answer in answers] == [JobState.WAITING, JobState.QUEUED, JobState.WAITING]
        assert {each.id for each in await driver.store.unmet(third.id)} == {first.id, second.id}

    @case
    async def test_jobs_in_a_dependency_cycle_are_rejected_and_others_are_kept(self) -> None:
        driver = self.driver()
        first, second, alone = await driver.new(), await driver.new(), await driver.new()
        itself = replace(alone, detail=after(alone))
        other = await driver.new()
        behind = await driver.new(detail=after(first))
        circle = [replace(first, key="a", detail=after(second)), replace(second, key="b", detail=after(first))]

        answers = await driver.store.submit([*circle, itself, other, behind])

        assert answers[:3] == [
            refusal_of(first, second.id, "cycle"),
            refusal_of(second, first.id, "cycle"),
            refusal_of(alone, alone.id, "cycle"),
        ]
        assert answers[3].is_new
        assert answers[4].refusal is not None
        assert await driver.store.count_jobs() == 1
        assert await driver.store.find_key("", "a") is None

    @case
    async def test_a_job_with_an_unknown_dependency_is_rejected(self) -> None:
        driver = self.driver()

        for stranger in _STRANGERS:
            job = await driver.new(key="mine", detail=after(stranger))
            assert await driver.store.submit([job]) == [refusal_of(job, stranger)]
        assert await driver.store.count_jobs() == 0
        assert await driver.store.find_key("", "mine") is None

    @case
    async def test_no_job_can_depend_on_a_job_of_another_tenant(self) -> None:
        driver = self.driver()
        theirs = [await driver.make(state, tenant="acme") for state in (JobState.QUEUED, JobState.SUCCEEDED)]

        for job in theirs:
            for tenant in ("", "other"):
                mine = await driver.new(tenant=tenant, detail=after(job))
                assert await driver.store.submit([mine]) == [refusal_of(mine, job.id)]
            assert (await driver.submit(tenant="acme", detail=after(job))).tenant == "acme"

    @case
    async def test_a_submission_can_be_repeated_after_its_dependencies_ended(self) -> None:
        driver = self.driver()
        first = await driver.submit(queue="first")
        job = await driver.new(key="mine", fingerprint=b"1", detail=after(first))
        assert (await driver.store.submit([job]))[0].is_new
        await driver.expect_update(first, JobState.CANCELLED, kind="cancel")
        await driver.release()

        again = await driver.new(key="mine", fingerprint=b"1", detail=after(_STRANGERS[0]))

        answers = await driver.store.submit([again, job])
        expected = Submitted(job.id, False, True, JobState.UPSTREAM_FAILED, (await driver.read(job.id)).version)
        assert answers == [expected, expected]

    @case
    async def test_a_job_can_depend_on_a_job_by_its_caller_chosen_id(self) -> None:
        driver = self.driver()
        first = await driver.submit(key="first", fingerprint=b"1")
        again = await driver.new(key="first", fingerprint=b"1")

        job = await driver.new(detail=after(again))
        await driver.store.submit([job, again])

        assert await driver.store.unmet(job.id) == [JobDependency(first.id)]

    @case
    async def test_a_waiting_unique_job_holds_its_key(self) -> None:
        driver = self.driver()
        first = await driver.submit(queue="first")
        job = await driver.submit(unique=unique(), detail=after(first))

        answer = await driver.try_submit(unique=unique())

        assert (answer.id, answer.is_duplicate, answer.state) == (job.id, True, JobState.WAITING)

    @case
    async def test_a_job_that_takes_the_key_of_its_dependency_never_runs(self) -> None:
        driver = self.driver()
        first = await driver.submit(unique=unique(replaces=True), due=HOUR)
        job = await driver.submit(unique=unique(replaces=True), detail=after(first))

        await driver.release()

        assert await driver.state(first) is JobState.CANCELLED
        assert await driver.state(job) is JobState.UPSTREAM_FAILED

    @case
    async def test_a_held_job_runs_once_released_and_its_dependencies_ended(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        job = await driver.submit(held=True, detail=after(first))
        other = await driver.submit(held=True, detail=after(first))
        assert (job.state, other.state) == (JobState.HELD, JobState.HELD)

        waiting = await driver.expect_update(job, JobState.QUEUED, kind="release")
        assert waiting.state is JobState.WAITING
        await driver.expect_accepted(first, "succeeded")
        assert await driver.release() == {job.queue}

        assert await driver.state(job) is JobState.QUEUED
        still = await driver.read(other)
        assert (still.state, still.version) == (JobState.HELD, other.version + 1)
        assert (await driver.expect_update(still, JobState.QUEUED, kind="release")).state is JobState.QUEUED

    @case
    async def test_a_waiting_job_can_be_held_changed_and_cancelled(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        job = await driver.submit(detail=after(first))

        changed = await driver.expect_update(job, priority=9, queue="fast", due=await driver.store.now_ms() + HOUR)
        held = await driver.expect_update(changed, JobState.HELD, kind="hold")
        assert (await driver.expect_update(held, JobState.SCHEDULED, kind="release")).state is JobState.WAITING
        second = await driver.submit(detail=after(job))
        await driver.expect_update(await driver.read(job), JobState.CANCELLED, kind="cancel")
        assert await driver.store.unmet(job.id) == []
        await driver.expect_accepted(first, "succeeded")
        await driver.release()

        assert await driver.state(job) is JobState.CANCELLED
        assert await driver.state(second) is JobState.UPSTREAM_FAILED
        assert await driver.timers() == []

    @case
    async def test_no_change_makes_a_waiting_job_run(self) -> None:
        driver = self.driver()
        first = await driver.submit(queue="first")
        job = await driver.submit(detail=after(first))

        for to in (JobState.QUEUED, JobState.SCHEDULED):
            job = await driver.expect_update(job, to)
            assert job.state is JobState.WAITING
        assert await _is_idle(driver, job.queue)


async def _is_idle(driver: JobDriver, queue: str) -> bool:
    return await driver.lanes(queue) == [] and await driver.timers() == []
