"""Ended jobs day by day, and forgotten for good."""

from taskmq.contracts.jobs import Catalogued, JobDetail, Retaining
from taskmq.model.jobs.definitions import DefinitionContent
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import JobDriver, after
from taskmq.testing.runner import case

__all__ = ["Retention"]

_DAY = 86_400_000


class Retention(JobStoreCase):
    """What `Retaining` promises; a store that is none has nothing to show."""

    @case
    async def test_ended_jobs_are_given_out_day_by_day_with_all_that_is_kept_of_them(self) -> None:
        driver = self.driver()
        store = _retaining(driver)
        await driver.submit(queue="live")
        ended = [await driver.make(state, queue=f"of {state}") for state in sorted(TERMINAL)]
        job = await driver.dispatched(
            queue="again", key="mine", detail=JobDetail(labels={"a": "b"}), body=b"[" + b"1," * 900 + b"1]"
        )
        await driver.accepted(job, "retry")
        await driver.accepted(await driver.again(job), "succeeded", result=b"7")
        ids = sorted([*(one.id for one in ended), job.id])

        days = await store.ended_days()

        # A day may have begun meanwhile.
        assert await driver.store.now_ms() // _DAY in days
        found = [one for day in days for one in await store.ended_on(day)]
        assert sorted(one.job.id for one in found) == ids
        (mine,) = [one for one in found if one.job.id == job.id]
        assert mine.job == await driver.read(job)
        assert mine.events == await driver.store.events(job.id)
        assert [one.attempt for one in mine.attempts] == [1]
        (first,) = [one for day in days[:1] for one in await store.ended_on(day, limit=1)]
        rest = [one.job.id for day in days for one in await store.ended_on(day, after=first.job.id)]
        assert sorted([first.job.id, *rest]) == ids
        assert await store.ended_on(days[0] - 1) == []

    @case
    async def test_ended_jobs_are_forgotten_for_good_and_live_ones_stay(self) -> None:
        driver = self.driver()
        store = _retaining(driver)
        done = await driver.dispatched(queue="done", key="mine", fingerprint=b"1")
        await driver.accepted(done, "retry")
        await driver.accepted(await driver.again(done), "succeeded")
        live = await driver.submit(key="live")

        assert await store.forget_ended([done.id, live.id, "nobody", done.id]) == 1

        assert await driver.store.get(done.id) is None
        assert await driver.store.events(done.id) == []
        assert await driver.store.attempts(done.id) == []
        assert await driver.store.find_key("", "mine") is None
        assert await driver.read(live) == live
        assert await store.forget_ended([done.id]) == 0
        assert (await driver.submit(key="mine", fingerprint=b"2")).key == "mine"
        assert (await driver.submitted(detail=after(done))).refusal is not None

    @case
    async def test_a_tenants_definitions_are_forgotten_with_all_their_versions(self) -> None:
        driver = self.driver()
        store = _retaining(driver)
        assert isinstance(driver.store, Catalogued)
        definitions = driver.store.definitions
        for tenant in ("acme", "other"):
            for owner in ("ann", "bob"):
                await definitions.put(tenant, "report", DefinitionContent(task="report", owner=owner))
        job = await driver.submit(tenant="acme")

        await store.forget_tenant("acme")
        await store.forget_tenant("nobody")

        assert await definitions.versions("acme", "report") == []
        assert len(await definitions.versions("other", "report")) == 2
        assert await driver.state(job) is JobState.QUEUED


def _retaining(driver: JobDriver) -> Retaining:
    assert isinstance(driver.store, Retaining)
    return driver.store
