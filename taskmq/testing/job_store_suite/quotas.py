"""Tests of quotas of tenants and owners."""

import asyncio

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, JobDetail, JobStore, Lane, NewJob, Pick, Submitted
from taskmq.model.commands import QueuePause
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.quotas import Quota, Quotas, run_name, usage_name
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, after
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case


class QuotaCases(JobStoreCase):
    """Every guarantee of quotas and of pauses of queues."""

    @case
    async def test_quotas_are_shared_by_all_processes_and_change_by_version(self) -> None:
        store, other = self.store(), self.store()
        assert await store.quotas() == Quotas()
        quotas_of_acme = _quotas(
            Quota(tenant="acme", a_day=5, rate=2.5, burst=3), Quota(tenant="acme", user="*", bytes=7)
        )

        assert not await store.limit(_quotas(version=2))
        assert await store.limit(quotas_of_acme)
        assert await other.quotas() == quotas_of_acme
        for version in (0, 1, 3):
            assert not await other.limit(_quotas(version=version)), version
        assert await other.limit(_quotas(version=2))

        assert await store.quotas() == Quotas(version=2)

    @case
    async def test_a_queue_stays_paused_until_any_process_resumes_it(self) -> None:
        store, other = self.store(), self.store()
        assert await store.queue_pauses() == {}
        first, second = QueuePause(1, "maintenance", "ann"), QueuePause(2, "still", "bob")

        assert await store.pause_queue("mail", first) == first
        assert await other.pause_queue("it's %", first) == first
        assert await other.pause_queue("mail", second) == QueuePause(1, "still", "bob")

        assert await store.queue_pauses() == {"mail": QueuePause(1, "still", "bob"), "it's %": first}
        assert await store.resume_queue("mail")
        assert not await other.resume_queue("mail")
        assert await other.queue_pauses() == {"it's %": first}
        assert await store.quotas() == Quotas()

    @case
    async def test_a_job_over_the_daily_quota_is_rejected_with_a_retry_time(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=2))
        jobs = [
            await driver.new(tenant="acme"),
            await driver.new(tenant="other"),
            await driver.new(tenant="acme", due=HOUR),
        ]
        third = await driver.new(tenant="acme", held=True)
        assert all(answer.is_new for answer in await driver.store.submit(jobs))

        (answer,) = await driver.store.submit([third])

        excess = answer.exceeded
        assert excess is not None
        assert (answer.is_new, excess.tenant, excess.user) == (False, "acme", None)
        assert (excess.limit, excess.most) == ("a_day", 2)
        assert excess.until == (excess.now // _DAY + 1) * _DAY
        assert await driver.store.get(third.id) is None
        usage = await driver.store.quota_usage([usage_name("acme"), usage_name("other")])
        assert [(name, each.jobs) for name, each in usage.items()] == [(usage_name("acme"), 2)]

    @case
    async def test_a_job_rejected_for_another_reason_uses_no_quota(self) -> None:
        driver = await self._limited_driver(
            Quota(tenant="acme", a_day=3, bytes=10_000, rate=100.0, burst=10, queued=3)
        )
        key = UniqueKey(name="one", until="running", ttl=HOUR)
        assert (await driver.try_submit(tenant="acme", unique=key)).is_new
        before = await driver.store.quota_usage([usage_name("acme")])

        for _ in range(5):
            assert (await driver.try_submit(tenant="acme", unique=key)).is_duplicate
        unknown = JobDetail(depends_on=(JobDependency("018f0000-0000-7000-8000-000000000001"),))
        assert (await driver.try_submit(tenant="acme", detail=unknown)).refusal is not None

        later = await driver.store.quota_usage([usage_name("acme")])
        assert [(each.jobs, each.bytes) for each in later.values()] == [
            (each.jobs, each.bytes) for each in before.values()
        ]
        assert (await driver.try_submit(tenant="acme")).is_new

    @case
    async def test_one_call_creates_the_jobs_within_the_quota_and_answers_in_order(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=2))
        jobs = [await driver.new(tenant=tenant) for tenant in ("acme", "other", "acme", "acme", "", "acme")]

        answers = await driver.store.submit(jobs)

        assert [answer.id for answer in answers] == [job.id for job in jobs]
        assert [answer.is_new for answer in answers] == [True, True, True, False, True, False]
        assert [answer.exceeded is None for answer in answers] == [answer.is_new for answer in answers]

    @case
    async def test_resubmitting_a_job_uses_no_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=1))
        job = await driver.new(tenant="acme", key="order-17")

        first = await driver.store.submit([job, job])
        (again,) = await driver.store.submit([await driver.new(tenant="acme", key="order-17")])

        assert [answer.is_new for answer in first] == [True, False]
        assert (again.id, again.exceeded) == (job.id, None)

    @case
    async def test_jobs_of_steps_wait_for_the_running_limit(self) -> None:
        driver = RunDriver(self.store())
        limits = _quotas(Quota(tenant="acme", running=1))

        run = await driver.start({"all": {"task": "t", "each": [1, 2, 3]}}, tenant="acme")
        await driver.settle()

        assert (await driver.step(run, "all")).active == 3
        assert len(await _within(driver, limits, "acme")) == 1
        assert await _within(driver, limits, "acme") == []

    @case
    async def test_the_running_limit_of_a_tenant_spans_all_queues(self) -> None:
        driver, other = self.driver(), self.driver()
        quotas_of_acme = _quotas(Quota(tenant="acme", running=3))
        jobs = [await driver.new(tenant="acme") for _ in range(4)]
        elsewhere = await driver.new(tenant="acme", queue="elsewhere")
        assert all(answer.is_new for answer in await driver.store.submit([elsewhere]))
        assert len(await _within(driver, quotas_of_acme, "acme", queue="elsewhere")) == 1
        await driver.store.submit(jobs)

        first = await _within(driver, quotas_of_acme, "acme")
        again = await _within(other, quotas_of_acme, "acme")

        assert [job.id for job in first] == [job.id for job in jobs[:2]]
        assert again == []
        await driver.expect_accepted(first[0], "succeeded")
        assert [job.id for job in await _within(other, quotas_of_acme, "acme")] == [jobs[2].id]

    @case
    async def test_other_owners_of_a_tenant_pass_one_at_its_limit(self) -> None:
        driver = self.driver()
        quotas_of_acme = _quotas(Quota(tenant="acme", user="*", running=1), Quota(tenant="acme", running=2))
        owners = ("ann", "ann", "bob", "cid")
        jobs = [await driver.new(tenant="acme", detail=JobDetail(owner=owner)) for owner in owners]
        await driver.store.submit(jobs)

        found = await _within(driver, quotas_of_acme, "acme")

        assert [(job.id, job.owner) for job in found] == [(jobs[0].id, "ann"), (jobs[2].id, "bob")]
        assert await _within(driver, quotas_of_acme, "acme") == []

    @case
    async def test_the_jobs_in_flight_of_a_tenant_are_counted_by_owner(self) -> None:
        driver, other = self.driver(), self.driver()
        owners = ("ann", "ann", "bob", "")
        jobs = [await driver.new(tenant="acme", detail=JobDetail(owner=owner)) for owner in owners]
        await driver.store.submit(jobs)
        assert await other.schedulers.count_in_flight("acme") == {}
        found = await _within(driver, _quotas(Quota(tenant="acme", running=10)), "acme")
        await driver.store.submit([await driver.new(tenant="acme", detail=JobDetail(owner="ann"))])

        assert await other.schedulers.count_in_flight("acme") == {"ann": 2, "bob": 1, "": 1}
        assert await other.schedulers.count_in_flight("other") == {}
        await driver.expect_accepted(found[0], "succeeded")
        assert await other.schedulers.count_in_flight("acme") == {"ann": 1, "bob": 1, "": 1}

    @case
    async def test_a_waiting_rate_limit_accepts_jobs_and_dispatches_them_later(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", rate=0.001, burst=2, on_limit="wait"))
        jobs = [await driver.new(tenant="acme") for _ in range(3)]

        assert all(answer.is_new for answer in await driver.store.submit(jobs))

        quotas_of_acme = await driver.store.quotas()
        found = await _within(driver, quotas_of_acme, "acme")
        assert [job.id for job in found] == [job.id for job in jobs[:2]]
        for job in found:
            await driver.expect_accepted(job, "succeeded")
        assert await _within(driver, quotas_of_acme, "acme") == []
        assert (await driver.store.quota_usage([usage_name("acme")]))[usage_name("acme")].jobs == 3
        assert (await driver.store.quota_usage([run_name("acme")]))[run_name("acme")].jobs == 2

    @case
    async def test_jobs_expire_regardless_of_quota_and_dispatch_needs_the_partition(self) -> None:
        driver = self.driver()
        quotas_of_acme = _quotas(Quota(tenant="acme", running=0))
        job = await driver.new(tenant="acme", expires=0)
        await driver.store.submit([job])

        assert await _within(driver, quotas_of_acme, "acme") == []
        record = await driver.store.get(job.id)
        assert record is not None
        assert record.state is JobState.EXPIRED
        more = await driver.new(tenant="acme")
        await driver.store.submit([more])
        assert await _within(driver, quotas_of_acme, "acme") == []
        partition = driver.store.dispatching.partition_of(more.queue)
        picks = [Pick(Lane(more.queue, more.priority, "acme"), 5)]
        assert await driver.store.dispatching.dispatch_within(partition, 10**15, picks, _quotas()) is None
        assert await driver.store.dispatching.dispatch_within(partition, 1, [], _quotas()) is None

        await driver.store.submit([await driver.new(tenant="acme", expires=0)])
        batch = await driver.schedulers.dispatch_within(
            partition, await driver.epoch(partition), picks, _quotas(Quota(tenant="acme", running=1))
        )
        assert batch is not None
        assert ([job.id for job in batch.jobs], batch.expired) == ([more.id], 1)

    @case
    async def test_dependencies_in_one_call_use_quota_before_their_dependents(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=1))
        parent = await driver.new(tenant="acme")
        child = await driver.new(tenant="acme", detail=after(parent))

        answers = await driver.store.submit([child, parent])

        assert [answer.is_new for answer in answers] == [False, True]
        assert answers[0].exceeded is not None
        assert await _jobs_used(driver.store, "acme") == 1

    @case
    async def test_jobs_in_a_dependency_cycle_use_no_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=1))
        first, other = await driver.new(tenant="acme"), await driver.new(tenant="acme")
        circle = [replace(first, detail=after(other)), replace(other, detail=after(first))]

        answers = await driver.store.submit([*circle, await driver.new(tenant="acme")])

        assert [answer.refusal is None for answer in answers] == [False, False, True]
        assert [answer.exceeded for answer in answers] == [None, None, None]
        assert answers[2].is_new
        assert await _jobs_used(driver.store, "acme") == 1

    @case
    async def test_one_job_submitted_many_times_concurrently_uses_quota_once(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=1))
        stores = [driver.store, *(self.store() for _ in range(3))]
        job = await driver.new(tenant="acme", key="order-17")

        answers = await asyncio.gather(*(_submit(store, job) for store in stores for _ in range(4)))

        assert [answer.exceeded for answer in answers] == [None] * len(answers)
        assert sum(answer.is_new for answer in answers) == 1
        assert await _jobs_used(driver.store, "acme") == 1

    @case
    async def test_only_queued_jobs_count_towards_the_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", queued=3))
        for due in (0, 0, HOUR):
            await driver.submit(tenant="acme", due=due, queue="one", priority=2)
        await driver.submit(tenant="acme", queue="two", priority=7)
        for _ in range(5):
            await driver.submit(tenant="other", queue="two")

        over = await _submit(driver.store, await driver.new(tenant="acme"))
        later = await _submit(driver.store, await driver.new(tenant="acme", due=HOUR))
        held = await _submit(driver.store, await driver.new(tenant="acme", held=True))

        assert over.exceeded is not None
        assert (over.exceeded.limit, over.exceeded.until) == ("queued", None)
        assert (later.is_new, held.is_new) == (True, True)

    @case
    async def test_the_byte_quota_counts_job_bodies(self) -> None:
        driver = self.driver()
        small, large = await driver.new(tenant="acme"), await driver.new(tenant="acme")
        await self._set_quotas(driver.store, Quota(tenant="*", bytes=2 * len(small.body) - 1))

        answers = await driver.store.submit([small, large])

        assert [answer.is_new for answer in answers] == [True, False]
        assert answers[1].exceeded is not None
        assert answers[1].exceeded.limit == "bytes"

    @case
    async def test_a_rate_admits_its_burst_and_returns_the_next_time(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", rate=0.001, burst=3))

        answers = await driver.store.submit([await driver.new(tenant="acme") for _ in range(4)])

        assert [answer.is_new for answer in answers] == [True, True, True, False]
        excess = answers[3].exceeded
        assert excess is not None
        assert excess.until is not None
        assert (excess.limit, excess.until - excess.now) == ("rate", 1_000_001)

    @case
    async def test_an_owner_has_a_quota_besides_the_tenant_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=3), Quota(tenant="acme", user="*", a_day=1))
        owners = ("ann", "ann", "bob", "", "cy")
        jobs = [await driver.new(tenant="acme", detail=JobDetail(owner=owner)) for owner in owners]

        answers = await driver.store.submit(jobs)

        over = [None if answer.exceeded is None else answer.exceeded.user for answer in answers]
        assert [answer.is_new for answer in answers] == [True, False, True, True, False]
        assert over == [None, "ann", None, None, None]

    @case
    async def test_many_concurrent_submitters_stay_within_the_quota(self) -> None:
        driver = await self._limited_driver(Quota(tenant="acme", a_day=10))
        stores = [driver.store, *(self.store() for _ in range(3))]

        calls = [
            (store, [await driver.new(tenant=tenant) for tenant in ("acme", "other", "acme")])
            for store in stores
            for _ in range(4)
        ]

        answers = await asyncio.gather(*(store.submit(jobs) for store, jobs in calls))

        made = [answer.is_new for some in answers for answer in some]
        assert sum(made) == 10 + len(answers)

    async def _limited_driver(self, *quotas: Quota) -> JobDriver:
        driver = self.driver()
        await self._set_quotas(driver.store, *quotas)
        return driver

    async def _set_quotas(self, store: JobStore, *quotas: Quota) -> None:
        assert await store.limit(_quotas(*quotas))


_DAY = 86_400_000


def _quotas(*quotas: Quota, version: int = 1) -> Quotas:
    return Quotas(version=version, quotas={usage_name(each.tenant, each.user): each for each in quotas})


async def _within(driver: JobDriver, quotas: Quotas, tenant: str, *, queue: str = QUEUE) -> list[DispatchedJob]:
    """Return which of ten jobs of the tenant in a queue a scheduler may dispatch."""
    partition = driver.schedulers.partition_of(queue)
    picks = [
        Pick(lane, 10)
        for lane in await driver.schedulers.lanes(partition)
        if (lane.queue, lane.tenant) == (queue, tenant)
    ]
    batch = await driver.schedulers.dispatch_within(partition, await driver.epoch(partition), picks, quotas)
    return [] if batch is None else batch.jobs


async def _submit(store: JobStore, job: NewJob) -> Submitted:
    (answer,) = await store.submit([job])
    return answer


async def _jobs_used(store: JobStore, tenant: str) -> int:
    name = usage_name(tenant)
    return (await store.quota_usage([name]))[name].jobs
