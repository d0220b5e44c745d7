"""Tests of dispatching: lanes, order, counts, and fencing."""

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, JobDetail, Lane, Pick
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import BODY, HOUR, QUEUE, JobDriver, ids
from taskmq.testing.runner import case

_QUEUES = [f"queue-{number}" for number in range(40)]


class Dispatches(JobStoreCase):
    """Every guarantee of `lanes`, `dispatch` and `in_flight`."""

    @case
    async def test_queues_are_distributed_over_the_partitions(self) -> None:
        schedulers, other = self.driver().schedulers, self.driver().schedulers

        assert 1 <= schedulers.partitions <= 64
        partitions = [schedulers.partition_of(queue) for queue in _QUEUES]
        assert partitions == [other.partition_of(queue) for queue in _QUEUES]
        assert set(partitions) <= set(range(schedulers.partitions))
        assert len(set(partitions)) > 1 or schedulers.partitions == 1

    @case
    async def test_the_lanes_of_a_partition_are_its_queues_with_ready_jobs(self) -> None:
        driver, other = self.driver(), self.driver()
        expected: set[Lane] = set()
        for number, queue in enumerate(_QUEUES):
            lane = Lane(queue, number % 10, "acme" if number % 2 else "")
            for _ in range(2):
                await driver.submit(queue=queue, priority=lane.priority, tenant=lane.tenant)
            await driver.submit(queue=queue, due=HOUR, priority=9, tenant="not ready")
            await driver.submit(queue=queue, held=True, priority=9, tenant="held")
            expected.add(lane)

        for partition in range(other.schedulers.partitions):
            lanes = await other.schedulers.lanes(partition)
            of_partition = {lane for lane in expected if other.schedulers.partition_of(lane.queue) == partition}
            assert sorted(lanes) == sorted(of_partition)

    @case
    async def test_a_dispatched_job_has_everything_its_message_needs(self) -> None:
        driver, other = self.driver(), self.driver()
        detail = JobDetail(owner="ann", labels={"for": "b"})
        job = await driver.submit(tenant="acme", key="k", task="mail.send", priority=7, expires=HOUR, detail=detail)
        before = await driver.store.now_ms()

        batch = await driver.dispatch()

        record = await other.read(job.id)
        assert not batch.confirmed
        assert batch.jobs == [
            DispatchedJob(
                id=job.id,
                key="k",
                tenant="acme",
                task="mail.send",
                queue=QUEUE,
                priority=7,
                attempt=1,
                token=record.token,
                expires=job.expires,
                body=BODY,
                due=job.due,
                owner="ann",
            )
        ]
        assert (record.state, record.version, record.attempt) == (JobState.DISPATCHED, 2, 1)
        assert record.dispatched is not None
        assert before <= record.dispatched <= await driver.store.now_ms()
        assert await other.lanes() == []

    @case
    async def test_a_lane_dispatches_by_due_time_and_then_by_submission(self) -> None:
        driver = self.driver()
        now = await driver.store.now_ms()
        jobs = await driver.submit_many(6)
        dues = (now - 10, now - 30, now - 10, now - 20, now - 30, now - 5)
        jobs = [await driver.expect_update(job, due=due) for job, due in zip(jobs, dues, strict=True)]
        (lane,) = await driver.lanes()

        order = [(await driver.dispatch(Pick(lane, 1))).jobs[0].id for _ in jobs]

        assert order == [job_id for _, job_id in sorted((job.due, job.id) for job in jobs)]

    @case
    async def test_as_many_jobs_are_dispatched_from_each_lane_as_picked(self) -> None:
        driver = self.driver()
        for tenant in ("a", "b", "c"):
            await driver.submit_many(5, tenant=tenant)
            await driver.submit_many(5, tenant=tenant, priority=9)
        high_a, high_b, low_b = Lane(QUEUE, 9, "a"), Lane(QUEUE, 9, "b"), Lane(QUEUE, 4, "b")

        batch = await driver.dispatch(Pick(high_a, 2), Pick(low_b, 100), Pick(high_b, 1))

        counts = {
            lane: sum(Lane(job.queue, job.priority, job.tenant) == lane for job in batch.jobs)
            for lane in (high_a, low_b, high_b)
        }
        assert counts == {high_a: 2, low_b: 5, high_b: 1}
        assert len(batch.jobs) == 8
        assert len(await driver.lanes()) == 5

    @case
    async def test_no_batch_is_created_without_jobs(self) -> None:
        driver = self.driver()
        await driver.submit(due=HOUR)
        await driver.submit(held=True)

        for picks in ([], [Pick(Lane(QUEUE, 4, ""), 10)], [Pick(Lane("no such queue", 4, "nobody"), 1)]):
            partition = driver.schedulers.partition_of(QUEUE)
            assert await driver.schedulers.dispatch(partition, await driver.epoch(partition), picks) is None

    @case
    async def test_a_job_is_dispatched_once(self) -> None:
        driver, other = self.driver(), self.driver()
        await driver.submit_many(20)
        (lane,) = await driver.lanes()
        partition = driver.schedulers.partition_of(QUEUE)
        epoch = await driver.epoch(partition)

        taken: list[str] = []
        for turn in range(5):
            batch = await (driver, other)[turn % 2].schedulers.dispatch(partition, epoch, [Pick(lane, 5)])
            taken += ids(batch.jobs) if batch else []

        assert len(taken) == len(set(taken)) == 20
        assert await driver.lanes() == []

    @case
    async def test_each_dispatch_has_a_new_token_that_fits_a_double(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        tokens = [job.token]

        for _ in range(5):
            await driver.expect_accepted(job, "interrupted")
            job = await driver.again(job)
            tokens.append(job.token)

        assert len(set(tokens)) == 6
        assert all(0 < token < 2**53 for token in tokens)
        assert [token >> 32 for token in tokens] == [1, 2, 3, 4, 5, 6]
        others = [one.token for one in (await _many(driver)).jobs]
        assert len({token & 0xFFFF_FFFF for token in others}) == len(others)

    @case
    async def test_an_expired_job_ends_instead_of_being_dispatched(self) -> None:
        driver = self.driver()
        live = await driver.submit(expires=HOUR)
        late = [await driver.submit(expires=-1), await driver.submit(expires=-HOUR)]

        batch = await driver.dispatch()

        assert ids(batch.jobs) == [live.id]
        assert batch.expired == 2
        for job in late:
            record = await driver.read(job)
            assert record.state is JobState.EXPIRED
            assert record.finished is not None
            assert record.attempt == 1
            assert record.version == 2
        assert await driver.lanes() == []

    @case
    async def test_an_old_epoch_dispatches_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await driver.submit(), await driver.submit(expires=-1)]
        partition = driver.schedulers.partition_of(QUEUE)
        stale = await driver.epoch(partition)
        present = await other.next_epoch(partition)

        for epoch in (stale, 0, -1, present + 1):
            assert await driver.try_dispatch(epoch=epoch) is None

        assert [await driver.read(job) for job in jobs] == jobs
        assert len((await other.dispatch()).jobs) == 1

    @case
    async def test_the_epoch_of_one_partition_is_invalid_for_others(self) -> None:
        driver = self.driver()
        queues = {driver.schedulers.partition_of(queue): queue for queue in _QUEUES}
        if len(queues) < 2:
            return
        mine, other = list(queues)[:2]
        # The number alone must not distinguish them.
        epochs = [await driver.next_epoch(mine), await driver.next_epoch(other), await driver.next_epoch(other)]
        await driver.submit(queue=queues[other])

        assert epochs[-1] != epochs[0]
        assert await driver.try_dispatch(queue=queues[other], epoch=epochs[0]) is None
        assert await driver.try_dispatch(queue=queues[other], epoch=epochs[-1]) is not None

    @case
    async def test_jobs_in_flight_are_found_by_dispatch_time(self) -> None:
        driver, other = self.driver(), self.driver()
        partition = driver.schedulers.partition_of(QUEUE)
        dispatched, running, retrying, ended = (await _many(driver, 4)).jobs
        await driver.expect_accepted(running, "started")
        await driver.expect_accepted(retrying, "retry", delay=HOUR)
        await driver.expect_accepted(ended, "succeeded")
        await driver.submit()
        # All jobs, dispatched at any time.
        far = 2**63 - 1

        found = await other.schedulers.in_flight(partition, dispatched_before=far)

        assert sorted(ids(found)) == sorted([dispatched.id, running.id])
        for record in found:
            whole = await driver.read(record)
            assert (record.token, record.state, record.dispatched) == (whole.token, whole.state, whole.dispatched)
            assert record.body == b""
        first = (await driver.read(dispatched)).dispatched
        assert first is not None
        assert await other.schedulers.in_flight(partition, dispatched_before=first) == []
        assert len(await other.schedulers.in_flight(partition, dispatched_before=first + 1)) == 2
        for another in set(range(other.schedulers.partitions)) - {partition}:
            assert await other.schedulers.in_flight(another, dispatched_before=far) == []


async def _many(driver: JobDriver, count: int = 50) -> DispatchBatch:
    await driver.submit_many(count)
    return await driver.dispatch()
