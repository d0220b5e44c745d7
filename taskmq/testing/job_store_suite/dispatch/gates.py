"""Tests of jobs behind gates: never lost or dispatched, but changed and ended like other jobs."""

from taskmq.contracts.jobs import Lane, Pick, QueueBacklog, TenantBacklog, WaitingLane
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, ids, later
from taskmq.testing.runner import case

_LANE = Lane(QUEUE, 4, "")


class GateCases(JobStoreCase):
    """Every guarantee of gates, and of `look`, backlogs and `waiting_lanes`."""

    @case
    async def test_a_preview_lists_the_first_jobs_of_lanes_in_order(self) -> None:
        driver = self.driver()
        first = await driver.submit()
        second = await driver.submit(body=b'{"task":"send_mail","args":[2]}')
        await driver.submit(due=HOUR)
        other = await driver.submit(queue="other", task="other", tenant="acme", priority=9)
        await driver.submit()
        lane = Lane("other", 9, "acme")

        found = await driver.schedulers.look([Pick(_LANE, 2), Pick(Lane("unknown", 4, ""), 3), Pick(lane, 3)])

        assert [(job.id, job.lane, job.task, job.body) for job in found] == [
            (first.id, _LANE, "send_mail", first.body),
            (second.id, _LANE, "send_mail", second.body),
            (other.id, lane, "other", other.body),
        ]
        assert await driver.schedulers.look([]) == []

    @case
    async def test_a_preview_marks_expired_jobs(self) -> None:
        driver = self.driver()
        late, live = await driver.submit(expires=-1), await driver.submit(expires=HOUR)

        found = await driver.schedulers.look([Pick(_LANE, 2)])

        assert {job.id: job.is_over for job in found} == {late.id: True, live.id: False}

    @case
    async def test_a_gated_job_is_queued_but_in_no_lane(self) -> None:
        driver = self.driver()
        jobs = await driver.submit_many(3)

        await _put(driver, {jobs[0].id: "k", jobs[2].id: "k"})

        assert await driver.read(jobs[0]) == jobs[0]
        assert await driver.store.events(jobs[0].id) == []
        assert [job.id for job in await driver.schedulers.look([Pick(_LANE, 10)])] == [jobs[1].id]
        assert [await driver.schedulers.gate_of(job.id) for job in jobs] == ["k", "", "k"]
        assert ids((await driver.dispatch()).jobs) == [jobs[1].id]
        assert await driver.lanes() == []
        assert await driver.schedulers.heads([QUEUE]) == {}

    @case
    async def test_a_backlog_counts_the_due_jobs_that_are_not_dispatched(self) -> None:
        driver = self.driver()
        first = await driver.submit()
        jobs = await driver.submit_many(3)
        await driver.submit(due=HOUR)
        gated = await driver.submit()
        await driver.submit(queue="other", task="other", tenant="acme")
        await _put(driver, {gated.id: "k"})

        found = await driver.schedulers.backlog([QUEUE, "unknown"], most=100)
        some = await driver.schedulers.backlog([QUEUE], most=3)
        dispatched = await driver.dispatch()
        rest = await driver.schedulers.backlog([QUEUE, "other"], most=100)

        assert found == {QUEUE: QueueBacklog(2 + len(jobs), first.due)}
        assert some[QUEUE].count == 3
        assert first.id in ids(dispatched.jobs)
        assert rest[QUEUE] == QueueBacklog(1, gated.due)
        assert rest["other"].count == 1

    @case
    async def test_the_backlog_of_each_tenant_names_its_first_job(self) -> None:
        driver = self.driver()
        assert await driver.schedulers.tenant_backlogs() == []
        gated = await driver.submit(tenant="acme")
        own = await driver.submit(queue="other")
        await driver.submit_many(3, tenant="acme")
        await driver.submit(tenant="acme", queue="other", due=HOUR)
        await _put(driver, {gated.id: "k"})

        found = await driver.schedulers.tenant_backlogs()

        assert found == [TenantBacklog("acme", 4, gated.due, gated.id), TenantBacklog("", 1, own.due, own.id)]
        assert sum(one.jobs for one in await driver.schedulers.tenant_backlogs(most=2)) == 3

    @case
    async def test_the_lanes_of_a_job_count_those_that_precede_it(self) -> None:
        driver = self.driver()
        gated = await driver.submit()
        await driver.submit(tenant="acme")
        await driver.submit(priority=3)
        await driver.submit(queue="other")
        await driver.submit()
        job = await driver.submit()
        await driver.submit()
        await driver.submit_many(2, priority=5)
        await _put(driver, {gated.id: "k"})

        found = await driver.schedulers.waiting_lanes(job)
        rising = await driver.schedulers.waiting_lanes(job, rise=HOUR)

        assert sorted(found) == [
            WaitingLane(3, "", 1, 1),
            WaitingLane(4, "", 3, 1),
            WaitingLane(4, "acme", 1, 1),
            WaitingLane(5, "", 2, 0),
        ]
        assert [lane.earlier for lane in sorted(rising)] == [0, 1, 1, 2]
        assert await driver.schedulers.count_lanes(job.queue) == {
            Lane(job.queue, each.priority, each.tenant): each.jobs for each in found
        }
        assert sum((await driver.schedulers.count_lanes(job.queue, most=2)).values()) == 2
        assert await driver.schedulers.count_lanes("idle") == {}
        assert await driver.schedulers.waiting_lanes(job, most=6) == []
        assert await driver.schedulers.waiting_lanes(gated) == []

    @case
    async def test_a_gate_releases_jobs_by_priority_and_then_by_time(self) -> None:
        driver, other = self.driver(), self.driver()
        middle, last = await driver.submit(), await driver.submit(tenant="acme")
        first, elsewhere = await driver.submit(priority=9), await driver.submit()
        await _put(driver, {last.id: "k", middle.id: "k", first.id: "k", elsewhere.id: "l"})

        assert await _open(other, {"k": 2, "no job waits behind it": 5}) == [
            ("k", Lane(QUEUE, 4, "")),
            ("k", Lane(QUEUE, 9, "")),
        ]
        assert await _open(other, {"k": 2, "l": 1}) == [
            ("k", Lane(QUEUE, 4, "acme")),
            ("l", Lane(QUEUE, 4, "")),
        ]

        assert await _open(other, {"k": 2, "l": 1}) == []
        assert [await driver.schedulers.gate_of(job.id) for job in (first, last)] == ["", ""]
        assert set(ids((await other.dispatch()).jobs)) == {last.id, middle.id, first.id, elsewhere.id}

    @case
    async def test_the_gates_of_a_partition_are_listed_once_each_in_order(self) -> None:
        driver = self.driver()
        jobs = await driver.submit_many(4)
        partition = driver.schedulers.partition_of(QUEUE)
        assert await driver.schedulers.closed_gates(partition) == []
        await _put(driver, {job.id: gate for job, gate in zip(jobs, ("b", "a", "b", "é"), strict=True)})

        assert await driver.schedulers.closed_gates(partition) == ["a", "b", "é"]
        assert await driver.schedulers.closed_gates(partition, after="a") == ["b", "é"]
        assert await driver.schedulers.closed_gates(partition, after="é") == []
        assert await driver.schedulers.closed_gates((partition + 1) % driver.schedulers.partitions) == []

    @case
    async def test_the_next_holder_of_a_partition_releases_its_gated_jobs(self) -> None:
        driver = self.driver()
        jobs = await driver.submit_many(3)
        await _put(driver, {job.id: gate for job, gate in zip(jobs, "kkl", strict=True)})
        await driver.next_epoch(driver.schedulers.partition_of(QUEUE))

        gates = await driver.schedulers.closed_gates(driver.schedulers.partition_of(QUEUE))
        assert await _open(driver, dict.fromkeys(gates, 9)) == [("k", _LANE), ("k", _LANE), ("l", _LANE)]

        assert ids((await driver.dispatch()).jobs) == ids(jobs)

    @case
    async def test_a_scheduler_without_the_partition_moves_no_jobs(self) -> None:
        driver = self.driver()
        partition = driver.schedulers.partition_of(QUEUE)
        behind, ready = await driver.submit_many(2)
        epoch = await driver.epoch(partition)
        await driver.schedulers.put_behind(partition, epoch, {behind.id: "k"})
        await driver.next_epoch(partition)

        await driver.schedulers.put_behind(partition, epoch, {ready.id: "k"})

        assert await driver.schedulers.open_gates(partition, epoch, {"k": 1}) == []
        assert [job.id for job in await driver.schedulers.look([Pick(_LANE, 9)])] == [ready.id]

    @case
    async def test_only_ready_jobs_are_gated(self) -> None:
        driver = self.driver()
        waits, held = await driver.submit(due=HOUR), await driver.submit(held=True)
        sent = await driver.dispatch_new()

        await _put(driver, {waits.id: "k", held.id: "k", sent.id: "k", waits.id[:-1] + "0": "k", "no id": "k"})

        assert await _open(driver, {"k": 9}) == []
        assert await driver.schedulers.gate_of("no id") == ""
        await driver.expect_accepted(sent, "succeeded")

    @case
    async def test_a_gated_job_can_be_cancelled_held_and_changed(self) -> None:
        driver = self.driver()
        cancelled, held, moved, delayed = await driver.submit_many(4)
        await _put(driver, dict.fromkeys((cancelled.id, held.id, moved.id, delayed.id), "k"))

        await driver.expect_update(cancelled, JobState.CANCELLED)
        await driver.expect_update(held, JobState.HELD)
        await driver.expect_update(moved, priority=7)
        await driver.expect_update(delayed, JobState.SCHEDULED, due=delayed.due + HOUR)

        assert (await driver.read(cancelled)).state is JobState.CANCELLED
        assert await _open(driver, {"k": 9}) == []
        assert ids((await driver.dispatch()).jobs) == [moved.id]

    @case
    async def test_the_end_of_a_forgotten_dispatch_removes_a_gated_job(self) -> None:
        driver = self.driver()
        sent = await driver.dispatch_new()
        job = await driver.expect_accepted(sent, "interrupted")
        await _put(driver, {job.id: "k"})

        (key, *_) = await driver.schedulers.report_keys()
        token = later(sent.token)
        proven = Report(id=job.id, token=token, proof=key.prove(job.id, token, ""), kind="succeeded")
        (applied,) = await driver.schedulers.apply([proven])

        assert applied.outcome == "accepted"
        assert await driver.schedulers.gate_of(job.id) == ""
        assert await _open(driver, {"k": 9}) == []

    @case
    async def test_an_expired_gated_job_ends_when_it_is_released(self) -> None:
        driver = self.driver()
        job = await driver.submit(expires=0)
        await _put(driver, {job.id: "k"})

        assert await _open(driver, {"k": 1}) == [("k", _LANE)]

        assert await driver.try_dispatch() is None
        assert (await driver.read(job)).state is JobState.EXPIRED

    @case
    async def test_gated_jobs_count_as_queued_in_the_tenant_quota(self) -> None:
        driver = self.driver()
        quota = Quota(tenant="acme", queued=3)
        assert await driver.store.limit(Quotas(version=1, quotas={usage_name("acme"): quota}))
        jobs = await driver.submit_many(2, tenant="acme")
        await _put(driver, {jobs[0].id: "k"})

        answers = [await driver.try_submit(tenant="acme") for _ in range(2)]

        assert [answer.exceeded is None for answer in answers] == [True, False]


async def _put(driver: JobDriver, gates: dict[str, str]) -> None:
    partition = driver.schedulers.partition_of(QUEUE)
    await driver.schedulers.put_behind(partition, await driver.epoch(partition), gates)


async def _open(driver: JobDriver, gates: dict[str, int]) -> list[tuple[str, Lane]]:
    """Open gates; return the released jobs, sorted."""
    partition = driver.schedulers.partition_of(QUEUE)
    return sorted(await driver.schedulers.open_gates(partition, await driver.epoch(partition), gates))
