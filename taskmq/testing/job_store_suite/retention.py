"""Tests of deleting ended jobs, day by day."""

from taskmq.contracts.history import AlertNotice, FailureFilter
from taskmq.contracts.jobs import Catalogued, DispatchedJob, JobDetail, Retaining
from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, AlertState, Silence
from taskmq.model.history.failure_groups import FailureKey, FailureMark
from taskmq.model.history.logs import LogFilter, RunLine, RunLog
from taskmq.model.history.rollups import RunFailure
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.definitions import DefinitionContent
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.nodes import AllocationFilter, NewAllocation, NodeTold, Placement
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import QUEUE, JobDriver, after, new_id
from taskmq.testing.job_store_suite.history.kit import history_of
from taskmq.testing.runner import case

_DAY = 86_400_000


class Retention(JobStoreCase):
    """Every guarantee of `Retaining`."""

    @case
    async def test_ended_jobs_are_exported_by_day_with_all_their_records(self) -> None:
        driver = self.driver()
        store = _retaining(driver)
        await driver.submit(queue="live")
        ended = [await driver.make(state, queue=f"of {state}") for state in sorted(TERMINAL)]
        job = await driver.dispatch_new(
            queue="again", key="mine", detail=JobDetail(labels={"a": "b"}), body=b"[" + b"1," * 900 + b"1]"
        )
        await driver.expect_accepted(job, "retry")
        await driver.expect_accepted(await driver.again(job), "succeeded", result=b"7")
        ids = sorted([*(one.id for one in ended), job.id])

        days = await store.ended_days()

        # The test may cross midnight.
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
    async def test_ended_jobs_are_deleted_and_live_ones_stay(self) -> None:
        driver = self.driver()
        store = _retaining(driver)
        done = await driver.dispatch_new(queue="done", key="mine", fingerprint=b"1")
        await driver.expect_accepted(done, "retry")
        await driver.expect_accepted(await driver.again(done), "succeeded")
        live = await driver.submit(key="live")

        assert await store.forget_ended([done.id, live.id, "nobody", done.id]) == 1

        assert await driver.store.get(done.id) is None
        assert await driver.store.events(done.id) == []
        assert await driver.store.attempts(done.id) == []
        assert await driver.store.find_key("", "mine") is None
        assert await driver.read(live) == live
        assert await store.forget_ended([done.id]) == 0
        assert (await driver.submit(key="mine", fingerprint=b"2")).key == "mine"
        assert (await driver.try_submit(detail=after(done))).refusal is not None

    @case
    async def test_deleting_a_job_deletes_its_logs_failures_and_allocations(self) -> None:
        driver = self.driver()
        store, nodes = _retaining(driver), driver.store.nodes
        history = history_of(driver)
        await nodes.report([NodeTold(name="a", capacity={"slots": 8.0, "cpu": 8.0}, runs_jobs=True)])
        done, live = [await _dispatch_placed(driver) for _ in range(2)]
        for job in (done, live):
            await history.logs.add([RunLog(id=job.id, token=job.token, lines=[RunLine(1, 20, "shop", "at work")])])
            await history.rollups.add([], [RunFailure(at=1, job=job.id, event="retry", task="t", queue=QUEUE)])
        over, in_use = [
            await nodes.allocate(NewAllocation(id=new_id(1), node=None, job=done.id, amounts={"cpu": 1.0}))
            for _ in range(2)
        ]
        assert over is not None
        assert in_use is not None
        await nodes.release(over.id)
        await driver.expect_accepted(done, "succeeded")

        assert await store.forget_ended([done.id, live.id]) == 1

        assert [line.job for line in (await history.logs.page(LogFilter())).lines] == [live.id]
        assert [one.job for one in (await history.rollups.failures(FailureFilter())).failures] == [live.id]
        assert [one.id for one in await nodes.allocations(AllocationFilter(job=done.id))] == [in_use.id]
        assert len(await nodes.allocations(AllocationFilter(job=live.id))) == 1

    @case
    async def test_deleting_a_tenant_deletes_all_its_other_data(self) -> None:
        driver = self.driver()
        store, nodes, alerts = _retaining(driver), driver.store.nodes, history_of(driver).alerts
        tenants = ("acme", 'acme"', "other")
        await driver.store.limit(
            Quotas(
                version=1,
                quotas={usage_name("*", user): Quota(tenant="*", user=user, a_day=9) for user in (None, "*")},
            )
        )
        await nodes.report([NodeTold(name="a", capacity={"cpu": 8.0})])
        for tenant in tenants:
            await driver.submit(tenant=tenant, detail=JobDetail(owner="ann"))
            rule = AlertRule(name="rule", metric="failure_rate", threshold=0.1, tenant=tenant, channels=())
            assert await alerts.put_rule(rule) == 1
            alert = Alert(
                tenant=tenant, rule="rule", subject="", state=AlertState.FIRING, since=1, value=1.0, changed=1
            )
            change = AlertChange(kind="firing", alert=alert)
            notice = AlertNotice(id=f"to {tenant}", channel="mailto:a@b.c", rule=rule, changes=[change], at=1, next=1)
            assert await alerts.commit([alert], [notice])
            await alerts.add_silence(Silence(id=f"of {tenant}", tenant=tenant, begins=1, ends=2))
            mark = FailureMark(key=FailureKey(tenant, "task", "ValueError"), state="muted", at=1)
            await history_of(driver).failures.put_mark(mark, audit=AuditEntry(action="failures.mute"))
            allocated = NewAllocation(id=new_id(1), node=None, job="theirs", tenant=tenant, amounts={"cpu": 1.0})
            assert await nodes.allocate(allocated) is not None
            await nodes.release(allocated.id)

        await store.forget_tenant("acme")

        left = ['acme"', "other"]
        assert sorted(each.rule.tenant for each in await alerts.rules()) == left
        assert sorted(each.tenant for each in await alerts.alerts()) == left
        assert sorted(each.tenant for each in await alerts.silences(ended=True)) == left
        assert sorted(each.rule.tenant for each in await alerts.notices()) == left
        assert sorted(each.key.tenant for each in await history_of(driver).failures.marks()) == left
        assert sorted(each.tenant for each in await nodes.allocations(AllocationFilter())) == left
        names = [usage_name(tenant, user) for tenant in tenants for user in (None, "ann")]
        assert set(await driver.store.quota_usage(names)) == set(names[2:])

    @case
    async def test_all_log_lines_of_a_tenant_are_deleted_however_many_exist(self) -> None:
        driver = self.driver()
        store, logs = _retaining(driver), history_of(driver).logs
        lines = [RunLine(1, 20, "shop", f"line {number}") for number in range(2_100)]
        for tenant, count in (("acme", len(lines)), ("other", 1)):
            job = await driver.dispatch_new(tenant=tenant)
            assert await logs.add([RunLog(id=job.id, token=job.token, lines=lines[:count])]) == count

        await store.forget_tenant("acme")

        assert [line.tenant for line in (await logs.page(LogFilter())).lines] == ["other"]

    @case
    async def test_definitions_of_a_tenant_are_deleted_with_all_their_versions(self) -> None:
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


async def _dispatch_placed(driver: JobDriver) -> DispatchedJob:
    job = await driver.submit()
    partition = driver.schedulers.partition_of(QUEUE)
    (node,) = await driver.store.nodes.nodes()
    wanted = Placement(job=job.id, tenant="", task=job.task, node="a", epoch=node.epoch, amounts={"cpu": 1.0})
    batch = await driver.store.nodes.place(partition, await driver.epoch(partition), [wanted])
    assert batch is not None
    (placed,) = batch.jobs
    return placed


def _retaining(driver: JobDriver) -> Retaining:
    assert isinstance(driver.store, Retaining)
    return driver.store
