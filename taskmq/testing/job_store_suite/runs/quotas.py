"""Tests of quotas of tenants and users whose steps wait for room."""

import asyncio
from typing import Any

from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.jobs.quotas import Quota, Quotas, QuotaUsage, usage_name
from taskmq.testing.job_store_suite.case import MovedClockCase
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case

_ONE: dict[str, Any] = {"s": {"task": "t"}}
_THREE: dict[str, Any] = {"all": {"task": "t", "each": [1, 2, 3]}}


class RunQuotas(MovedClockCase):
    """Quotas of the jobs of steps, for stores whose clock can be moved."""

    @case
    async def test_a_step_waits_for_a_daily_quota_until_the_next_day(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=1))
        assert (await driver.try_submit(tenant="acme")).is_new
        run = await driver.start(_ONE, tenant="acme")
        await driver.settle()

        step = await driver.step(run, "s")
        assert (step.state, step.quota) == ("waiting", "tenant 'acme' has reached its quota of 1 job per day")

        await self.advance(86_400)
        await driver.runs.fire_timers()
        await driver.settle()
        assert (await driver.states(run)) == {"s": "running"}
        assert (await driver.step(run, "s")).quota == ""
        assert (await driver.try_submit(tenant="acme")).exceeded is not None
        await driver.finish(run, "s")
        assert (await driver.run(run)).state == "succeeded"

    @case
    async def test_children_wait_until_the_queue_of_their_tenant_has_room(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", queued=2))
        run = await driver.start(_THREE, tenant="acme")
        await driver.settle()

        step = await driver.step(run, "all")
        assert (step.active, step.quota) == (2, "tenant 'acme' has reached its quota of 2 waiting jobs")
        assert (await driver.try_submit(tenant="acme")).exceeded is not None

        await driver.dispatch()
        await self._pass_a_minute(driver)
        assert (await driver.step(run, "all")).active == 3
        for child in range(3):
            await driver.finish(run, "all", child=child)
        assert (await driver.run(run)).state == "succeeded"

    @case
    async def test_children_start_at_the_rate_of_their_tenant(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", rate=1 / 30, burst=2))
        run = await driver.start({"all": {"task": "t", "each": list(range(6))}}, tenant="acme")
        await driver.settle()

        step = await driver.step(run, "all")
        assert (step.active, step.quota) == (2, "tenant 'acme' has reached its quota of 0.0333333 jobs per second")
        await self._pass_a_minute(driver)
        assert (await driver.step(run, "all")).active == 4
        await self._pass_a_minute(driver)
        assert (await driver.step(run, "all")).active == 6

    @case
    async def test_a_step_waits_for_the_quota_of_its_owner_alone(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", user="*", bytes=50))
        steps = {
            "ann": {"task": "t", "args": ["x" * 30], "owner": "ann"},
            "ann2": {"task": "t", "args": ["x" * 30], "owner": "ann"},
            "bob": {"task": "t", "args": ["x" * 30], "owner": "bob"},
            "nobody": {"task": "t", "args": ["x" * 30]},
        }
        run = await driver.start(steps, tenant="acme")
        await driver.settle()

        found = {name: await driver.step(run, name) for name in steps}
        assert [str(step.state) for step in found.values()] == ["running", "waiting", "running", "running"]
        assert found["ann2"].quota == "user 'ann' of tenant 'acme' has reached its quota of 50 bytes of jobs per day"
        usage = await driver.store.quota_usage([usage_name("acme", "ann"), usage_name("acme", "bob")])
        assert [each.jobs for each in usage.values()] == [1, 1]

    @case
    async def test_jobs_of_steps_count_like_submitted_ones(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=9), Quota(tenant="other", a_day=9))
        run = await driver.start({**_THREE, "s": {"task": "t", "args": [1]}, "w": {"wait": "go"}}, tenant="acme")
        await driver.settle()

        found = await driver.store.quota_usage([usage_name("acme"), usage_name("other")])
        sizes = [len((await driver.read((await driver.step(run, "all", child)).job)).body) for child in range(3)]
        sizes.append(len((await driver.read((await driver.step(run, "s")).job)).body))
        day = await driver.store.now_ms() // 86_400_000
        assert found == {usage_name("acme"): QuotaUsage(day, 4, sum(sizes), 0.0)}

    @case
    async def test_a_step_without_a_job_uses_no_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=3))
        unknown = "018f0000-0000-7000-8000-000000000001"
        steps = {
            "no": {"task": "refused"},
            "alone": {"task": "t", "after": unknown, "needs": ["no"], "rule": "always"},
        }
        run = await driver.start({**steps, "s": {"task": "t"}}, tenant="acme")
        await driver.settle()

        assert await driver.states(run) == {"no": "failed", "alone": "failed", "s": "running"}
        assert (await driver.store.quota_usage([usage_name("acme")]))[usage_name("acme")].jobs == 1

    @case
    async def test_a_waiting_step_starts_within_a_minute_after_its_quota_is_raised(self) -> None:
        driver = await self._limited_driver(Quota(tenant="*", a_day=0))
        run = await driver.start(_ONE, tenant="acme")
        await driver.settle()
        assert await driver.states(run) == {"s": "waiting"}
        assert await driver.store.limit(Quotas(version=2))

        await self._pass_a_minute(driver)

        assert await driver.states(run) == {"s": "running"}

    @case
    async def test_a_cancelled_run_does_not_wait_for_its_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=0))
        run = await driver.start({**_ONE, **_THREE}, tenant="acme")
        await driver.settle()

        assert await driver.send(run, NewInboxRow(kind="cancel", id="c", error="stop")) == "accepted"

        assert (await driver.run(run)).state == "cancelled"
        await self._pass_a_minute(driver)
        assert await driver.states(run) == {"s": "cancelled", "all": "cancelled"}

    @case
    async def test_steps_and_submissions_together_stay_within_the_quota(self) -> None:
        drivers = [await self._limited_driver(Quota(tenant="acme", a_day=20))]
        drivers += [RunDriver(self.store()) for _ in range(2)]
        runs = [await drivers[0].start(_THREE, tenant=tenant) for tenant in ("acme", "acme", "acme", "other")]
        jobs = [await drivers[0].new(tenant="acme") for _ in range(30)]

        async def work(driver: RunDriver) -> int:
            made = 0
            for job in jobs[drivers.index(driver) :: 3]:
                await driver.advance(*runs)
                made += (await driver.store.submit([job]))[0].is_new
            return made

        submitted = sum(await asyncio.gather(*map(work, drivers)))
        for _ in range(4):
            await self._pass_a_minute(drivers[0])

        active = [(await drivers[0].step(run, "all")).active for run in runs]
        assert (submitted + sum(active[:3]), active[3]) == (20, 3)
        assert (await drivers[0].store.quota_usage([usage_name("acme")]))[usage_name("acme")].jobs == 20

    async def _limited_driver(self, *quotas: Quota) -> RunDriver:
        driver = RunDriver(self.store())
        by_name = {usage_name(each.tenant, each.user): each for each in quotas}
        assert await driver.store.limit(Quotas(version=1, quotas=by_name))
        return driver

    async def _pass_a_minute(self, driver: RunDriver) -> None:
        await self.advance(60)
        await driver.runs.fire_timers()
        await driver.settle()
