"""Tests in which time passes, for stores whose clock can be moved."""

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    Catalogued,
    DispatchedJob,
    JobClaim,
    NewInboxRow,
    Prunable,
    Retaining,
    TakenClaims,
    WorkDone,
    partition_key,
)
from taskmq.model.history.journals import SaveRequest
from taskmq.model.history.suspensions import SUSPENDED
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.jobs.registrations import TaskRegistration
from taskmq.model.nodes import NodeTold
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, report
from taskmq.testing.job_store_suite.runs.history import LimitedRunsByModel
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.job_store_suite.runs.quotas import RunQuotas
from taskmq.testing.runner import case


class OldRuns(RunQuotas):
    """Runs that wait, for quotas or for weeks: `advance` moves the store's clock, which may also run on by itself."""

    @case
    async def test_a_run_waits_longer_than_jobs_are_kept(self) -> None:
        driver = RunDriver(self.store())
        steps = {
            "first": {"task": "t"},
            "ok": {"wait": "go", "needs": ["first"], "timeout": "40d", "on_timeout": {"value": "late"}},
            "use": {"task": "t", "args": ["${steps.first.result}", "${steps.ok.result}"]},
        }
        runs = [await driver.start(steps) for _ in range(2)]
        await driver.settle()
        for run in runs:
            await driver.finish(run, "first", value=["kept"])
        jobs = [(await driver.step(run, "first")).job for run in runs]

        await self.advance(31 * 86_400)
        store = driver.store
        assert isinstance(store, Prunable)
        await store.prune(keep_days=30)
        assert [await store.get(job) for job in jobs] == [None, None]
        await self.advance(9 * 86_400)
        # A signal and the timeout of one instant: the first row of the inbox counts.
        signal = NewInboxRow(kind="signal", id="s", name="go", value=b'"signal"')
        assert await store.runs.send(runs[0], signal)
        assert await store.runs.fire_timers() is None
        assert await store.runs.send(runs[1], signal)
        await driver.settle()

        found = [await driver.arguments(run, "use") for run in runs]
        assert found == [[[["kept"], "signal"], {}], [[["kept"], "late"], {}]]
        assert [await store.runs.answer(run, "s") for run in runs] == ["consumed", "waiting"]
        for run in runs:
            await driver.finish(run, "use")
        assert [str((await driver.run(run)).state) for run in runs] == ["succeeded"] * 2


class MovedClocks(OldRuns, LimitedRunsByModel):
    """Tests without waiting, for stores whose clock only `advance` moves.

    class TestMine(MovedClocks, JobStoreSuite): ...
    """

    @case
    async def test_a_scheduled_job_becomes_due(self) -> None:
        driver = self.driver()
        job = await driver.submit(due=HOUR)

        assert [timer for timer in await driver.timers() if timer.due <= await driver.store.now_ms()] == []
        await self.advance(3_600)
        assert [timer.id for timer in await driver.timers() if timer.due <= await driver.store.now_ms()] == [job.id]

    @case
    async def test_a_step_that_waits_for_a_signal_ends_by_its_timeout(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"ok": {"wait": "go", "timeout": "1h", "on_timeout": {"value": 5}}})
        await driver.settle()
        following = await driver.runs.fire_timers()
        await driver.settle()
        assert await driver.states(run) == {"ok": "running"}

        await self.advance(3_600)
        assert following == await driver.store.now_ms()
        assert await driver.runs.fire_timers() is None
        await driver.settle()

        assert await driver.value(run, "ok") == 5

    @case
    async def test_a_job_expires_while_it_waits(self) -> None:
        driver = self.driver()
        job = await driver.submit(expires=HOUR)

        await self.advance(3_600)

        assert await driver.try_dispatch() is None
        assert await driver.state(job) is JobState.EXPIRED

    @case
    async def test_saved_values_of_a_failed_job_are_kept_for_a_week(self) -> None:
        driver = self.driver()
        journals = driver.store.journals
        failed, live = await driver.dispatch_new(), await driver.dispatch_new()
        for job in (failed, live):
            request = SaveRequest(reply="worker.saved.w1", number=1, run="a")
            await journals.save([report(job, "saving", saving=request)])
        await driver.expect_accepted(failed, "failed")

        await driver.schedulers.maintain()
        assert (await journals.values([failed.id, live.id])).keys() == {failed.id, live.id}
        await self.advance(8 * 86_400)
        await driver.schedulers.maintain()

        assert (await journals.values([failed.id, live.id])).keys() == {live.id}

    @case
    async def test_a_key_is_remembered_for_longer_than_the_history_of_its_jobs(self) -> None:
        driver, partition = self.driver(), self.driver().schedulers.partition_of(QUEUE)
        claims = (JobClaim("once:key", ttl=40 * 24 * HOUR),)

        async def take() -> tuple[DispatchedJob, TakenClaims | None]:
            job = replace(await driver.dispatch_new(), claims=claims)
            return job, await driver.schedulers.take_claims(partition, await driver.epoch(partition), [job])

        first, _ = await take()
        await driver.expect_accepted(first, "succeeded", result=b"7")
        await self.advance(32 * 86_400)
        await driver.schedulers.maintain()
        second, taken = await take()

        assert await driver.store.get(first.id) is None
        assert taken == TakenClaims(done={second.id: WorkDone(first.id, "", b"7")})
        await self.advance(9 * 86_400)
        await driver.schedulers.maintain()
        third, taken = await take()
        assert taken is not None
        assert taken.fences.keys() == {third.id}

    @case
    async def test_a_suspended_job_keeps_its_key_for_longer_than_jobs_are_kept(self) -> None:
        driver, partition = self.driver(), self.driver().schedulers.partition_of(QUEUE)
        claims = (JobClaim("once:key", ttl=40 * 24 * HOUR),)
        why = ErrorRecord(type_name=SUSPENDED, message="waiting")
        asleep, other = await driver.dispatch_new(), await driver.dispatch_new()
        first = replace(asleep, claims=claims)
        before = await driver.schedulers.take_claims(partition, await driver.epoch(partition), [first])
        await driver.expect_accepted(first, "snoozed", delay=90 * 24 * HOUR, error=why)

        await self.advance(50 * 86_400)
        await driver.schedulers.maintain()

        second = replace(other, claims=claims)
        taken = await driver.schedulers.take_claims(partition, await driver.epoch(partition), [second])
        assert taken == TakenClaims(waiting={second.id: "once:key"})
        again = replace(await driver.again(first), claims=claims)
        after = await driver.schedulers.take_claims(partition, await driver.epoch(partition), [again])
        assert before is not None
        assert after is not None
        assert after.fences[first.id] > before.fences[first.id]

    @case
    async def test_a_forgotten_tenant_leaves_no_results_of_its_keys(self) -> None:
        driver, partition = self.driver(), self.driver().schedulers.partition_of(QUEUE)
        claims = [JobClaim(f"{tenant}once:key", ttl=40 * 24 * HOUR) for tenant in ("@acme:", "@acm:")]

        async def take() -> tuple[list[DispatchedJob], TakenClaims | None]:
            jobs = [replace(await driver.dispatch_new(), claims=(claim,)) for claim in claims]
            return jobs, await driver.schedulers.take_claims(partition, await driver.epoch(partition), jobs)

        for job in (await take())[0]:
            await driver.expect_accepted(job, "succeeded", result=b"7")
        await self.advance(32 * 86_400)
        await driver.schedulers.maintain()
        store = driver.store
        assert isinstance(store, Retaining)
        await store.forget_tenant("acme")

        (forgotten, kept), taken = await take()
        assert taken is not None
        assert (set(taken.fences), set(taken.done)) == ({forgotten.id}, {kept.id})

    @case
    async def test_a_removed_node_returns_with_a_new_epoch(self) -> None:
        nodes = self.driver().store.nodes
        await nodes.report([NodeTold(name="a")])
        (before,) = await nodes.nodes()
        await nodes.remove("a")

        await self.advance(1)
        await nodes.report([NodeTold(name="a")])

        (after,) = await nodes.nodes()
        assert after.epoch > before.epoch

    @case
    async def test_a_partition_is_free_after_its_holder_falls_silent(self) -> None:
        driver, other = self.driver(), self.driver()
        key = partition_key(partition := driver.schedulers.partition_of(QUEUE))
        await driver.submit()
        first = await driver.schedulers.leases.acquire(key, owner="a", seconds=5)

        await self.advance(5)
        second = await other.schedulers.leases.acquire(key, owner="b", seconds=5)

        assert isinstance(first, int)
        assert isinstance(second, int)
        assert second > first
        assert await driver.try_dispatch(epoch=first) is None
        assert await driver.schedulers.take_over(partition, first) == []
        assert await other.try_dispatch(epoch=second) is not None

    @case
    async def test_quota_usage_is_deleted_after_two_days(self) -> None:
        driver = self.driver()
        slow = Quota(tenant="slow", rate=1e-6)
        quotas = {usage_name(each.tenant): each for each in (Quota(tenant="acme", a_day=5), slow)}
        assert await driver.store.limit(Quotas(version=1, quotas=quotas))
        for tenant in ("acme", "slow"):
            await driver.submit(tenant=tenant)

        await driver.schedulers.maintain()
        assert set(await driver.store.quota_usage(list(quotas))) == set(quotas)
        await self.advance(4 * 86_400)
        await driver.schedulers.maintain()

        # Its rate limit stays exhausted for longer than that.
        assert set(await driver.store.quota_usage(list(quotas))) == {usage_name("slow")}

    @case
    async def test_a_task_not_reported_for_thirty_days_is_deleted(self) -> None:
        store = self.store()
        assert isinstance(store, Catalogued)
        gone, kept = (TaskRegistration(task=name, queue="q") for name in ("gone", "kept"))
        await store.tasks.register([gone, kept], origin="app")
        (before,) = await store.tasks.registrations(["kept"])

        await self.advance(29 * 86_400)
        await store.tasks.register([kept], origin="app")
        assert await store.tasks.names() == ["gone", "kept"]
        await self.advance(86_400)
        await store.tasks.register([kept], origin="app")

        assert await store.tasks.names() == ["kept"]
        (after,) = await store.tasks.registrations(["kept"])
        assert (after.first, after.last) == (before.first, before.last + 30 * 86_400_000)
