"""Races between the end of a job and the submission of its dependents."""

import asyncio

from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import after, report
from taskmq.testing.runner import case

_ROUNDS = 5
_AT_A_TIME = 8


class DependencyRaces(JobStoreCase):
    """Guarantees that no job waits forever."""

    @case
    async def test_a_job_that_ends_during_submission_releases_all_its_dependents(self) -> None:
        driver, other, third = self.driver(), self.driver(), self.driver()

        for turn in range(_ROUNDS):
            first = await driver.dispatch_new(queue=f"first {turn}")
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task((other, third)[number % 2].try_submit(queue="rest", detail=after(first)))
                    for number in range(_AT_A_TIME)
                ]
                group.create_task(driver.report(first, "succeeded"))
                group.create_task(third.release())
            await driver.release()

            assert {await driver.state(call.result().id) for call in calls} == {JobState.QUEUED}

    @case
    async def test_two_last_dependencies_that_end_together_release_a_job_once(self) -> None:
        drivers = [self.driver() for _ in range(3)]
        driver = drivers[0]

        for turn in range(_ROUNDS):
            await driver.submit_many(4, queue=f"first {turn}")
            first = (await driver.dispatch(queue=f"first {turn}")).jobs
            jobs = await driver.submit_many(4, queue=f"rest {turn}", detail=after(*first))
            async with asyncio.TaskGroup() as group:
                for number, one in enumerate(first):
                    group.create_task(drivers[number % 3].schedulers.apply([report(one, "succeeded")] * 2))
                for each in drivers:
                    group.create_task(each.release())
            await asyncio.gather(*(each.release() for each in drivers))

            found = [await driver.read(job) for job in jobs]
            assert {(job.state, job.version) for job in found} == {(JobState.QUEUED, 2)}

    @case
    async def test_a_job_released_as_its_last_dependency_ends_does_not_stay_waiting(self) -> None:
        driver, other = self.driver(), self.driver()

        for turn in range(_ROUNDS):
            first = await driver.dispatch_new(queue=f"first {turn}")
            job = await driver.submit(held=True, detail=after(first))
            await driver.expect_accepted(first, "succeeded")
            async with asyncio.TaskGroup() as group:
                group.create_task(driver.release())
                releasing = group.create_task(other.update(job, JobState.QUEUED, kind="release"))
            if releasing.result() is None:
                assert await other.update(await other.read(job), JobState.QUEUED, kind="release") is not None
            await driver.release()

            assert await driver.state(job) is JobState.QUEUED

    @case
    async def test_a_job_cancelled_during_submission_ends_all_its_dependents(self) -> None:
        driver, other, third = self.driver(), self.driver(), self.driver()

        for turn in range(_ROUNDS):
            first = await driver.submit(queue=f"first {turn}", held=True)
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task((other, third)[number % 2].try_submit(queue="rest", detail=after(first)))
                    for number in range(_AT_A_TIME)
                ]
                group.create_task(driver.update(first, JobState.CANCELLED, kind="cancel"))
                group.create_task(third.release())
            await driver.release()

            assert {await driver.state(call.result().id) for call in calls} == {JobState.UPSTREAM_FAILED}
        assert await driver.lanes("rest") == []

    @case
    async def test_a_job_cancelled_as_it_is_released_is_cancelled_or_runs(self) -> None:
        driver, other, third = self.driver(), self.driver(), self.driver()

        for turn in range(_ROUNDS):
            first = await driver.dispatch_new(queue=f"first {turn}")
            job = await driver.submit(queue=f"second {turn}", detail=after(first))
            last = await driver.submit(queue=f"last {turn}", detail=after(job))
            async with asyncio.TaskGroup() as group:
                group.create_task(driver.report(first, "succeeded"))
                group.create_task(third.release())
                cancelling = group.create_task(other.update(job, JobState.CANCELLED, kind="cancel"))
            await driver.release()

            is_cancelled = cancelling.result() is not None
            assert await driver.state(job) is (JobState.CANCELLED if is_cancelled else JobState.QUEUED)
            assert await driver.state(last) is (JobState.UPSTREAM_FAILED if is_cancelled else JobState.WAITING)
            batch = await driver.try_dispatch(queue=job.queue)
            assert (batch is None) is is_cancelled

    @case
    async def test_cancelling_a_whole_chain_at_once_leaves_nothing_waiting(self) -> None:
        drivers = [self.driver() for _ in range(3)]
        driver = drivers[0]

        for turn in range(_ROUNDS):
            chain = [await driver.submit(queue=f"first {turn}")]
            for _ in range(4):
                chain.append(await driver.submit(queue=f"rest {turn}", detail=after(chain[-1])))
            async with asyncio.TaskGroup() as group:
                for number, job in enumerate(chain):
                    group.create_task(drivers[number % 3].update(job, JobState.CANCELLED, kind="cancel"))
                group.create_task(drivers[1].release())
                submitting = group.create_task(drivers[2].try_submit(queue=f"rest {turn}", detail=after(chain[2])))
            await driver.release()

            ends = [await driver.state(job) for job in (*(each.id for each in chain), submitting.result().id)]
            assert ends[0] is JobState.CANCELLED
            assert set(ends[1:]) <= {JobState.CANCELLED, JobState.UPSTREAM_FAILED}
            assert ends[-1] is JobState.UPSTREAM_FAILED
            assert await driver.lanes(f"rest {turn}") == []
