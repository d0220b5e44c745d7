"""Tests of the holder of a unique key, and of how long it holds it."""

from collections.abc import Sequence
from typing import Literal

from taskmq.contracts.jobs import JobRecord, Submitted
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.states import CHANGEABLE, TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import END_KINDS, HOUR, error
from taskmq.testing.runner import case

_BEFORE_A_RUN: Sequence[JobState] = (JobState.HELD, JobState.SCHEDULED, JobState.QUEUED, JobState.DISPATCHED)


def unique(
    until: Literal["waiting", "running", "over"] = "waiting",
    *,
    name: str = "unique:mail:17",
    replaces: bool = False,
    ttl: int = HOUR,
) -> UniqueKey:
    return UniqueKey(name=name, until=until, replaces=replaces, ttl=ttl)


def duplicate_of(job: JobRecord) -> Submitted:
    """Return the answer to a submission whose key this job holds."""
    return Submitted(job.id, False, False, job.state, job.version, is_duplicate=True)


class UniqueJobs(JobStoreCase):
    """Guarantees of `submit` for jobs with unique keys."""

    @case
    async def test_a_waiting_job_holds_its_key_and_blocks_a_second_job(self) -> None:
        driver, other = self.driver(), self.driver()

        for state in _BEFORE_A_RUN:
            key = unique(name=f"of {state} ☂")
            job = await driver.make(state, unique=key)

            answer = await other.try_submit(unique=key, key=f"mine {state}")

            assert answer == duplicate_of(job), state
            assert await driver.store.count_jobs() == _BEFORE_A_RUN.index(state) + 1
            assert await driver.store.find_key("", f"mine {state}") is None
            assert await driver.read(job) == job

    @case
    async def test_a_key_is_free_once_its_job_has_started(self) -> None:
        driver = self.driver()

        for state in (JobState.RUNNING, JobState.RETRYING):
            key = unique(name=f"of {state}")
            job = await driver.make(state, unique=key)

            second = await driver.submit(unique=key)

            assert await driver.try_submit(unique=key) == duplicate_of(second), state
            assert await driver.state(job) is state

    @case
    async def test_a_key_stays_free_after_the_run_that_freed_it_is_interrupted(self) -> None:
        driver = self.driver()

        for kind in ("interrupted", "snoozed"):
            key = unique(name=f"of {kind}")
            job = await driver.dispatch_new(unique=key, queue=kind)
            begun = await driver.expect_accepted(job, "started", started=await driver.store.now_ms())
            await driver.expect_accepted(job, kind, started=begun.started, delay=HOUR, error=error("away"))
            # The job was redelivered, so its recorded start is from the run before.
            await driver.again(job)

            assert (await driver.try_submit(unique=key)).is_new, kind
            assert await driver.state(job) is JobState.DISPATCHED

    @case
    async def test_a_job_deferred_by_a_limit_keeps_its_key(self) -> None:
        driver = self.driver()
        key = unique()
        job = await driver.dispatch_new(unique=key)
        await driver.expect_accepted(job, "snoozed", delay=HOUR, limited=True)

        assert await driver.try_submit(unique=key) == duplicate_of(await driver.read(job))

    @case
    async def test_a_key_held_while_running_is_free_after_any_end(self) -> None:
        driver = self.driver()
        key = unique("running")

        for kind in END_KINDS:
            job = await driver.dispatch_new(unique=key, queue=kind)
            assert await driver.try_submit(unique=key) == duplicate_of(await driver.read(job))
            await driver.expect_accepted(job, "started")
            assert await driver.try_submit(unique=key) == duplicate_of(await driver.read(job))
            await driver.expect_accepted(job, kind)
        retrying = await driver.make(JobState.RETRYING, unique=key)
        assert await driver.try_submit(unique=key) == duplicate_of(retrying)
        ended = await driver.expect_update(retrying, JobState.CANCELLED, kind="cancel")

        assert ended.state in TERMINAL
        assert (await driver.try_submit(unique=key)).is_new

    @case
    async def test_a_key_can_be_held_for_a_period_regardless_of_its_job(self) -> None:
        driver = self.driver()
        key = unique("over")
        job = await driver.expect_accepted(await driver.dispatch_new(unique=key), "succeeded", result=b"1")

        assert await driver.try_submit(unique=key) == duplicate_of(job)

    @case
    async def test_an_expired_key_is_free(self) -> None:
        driver = self.driver()

        for until in ("waiting", "running", "over"):
            key = unique(until, name=until, ttl=-1)
            await driver.submit(unique=key)
            assert (await driver.try_submit(unique=key)).is_new, until

    @case
    async def test_other_keys_and_jobs_without_a_key_are_unaffected(self) -> None:
        driver = self.driver()
        await driver.submit(unique=unique())

        assert (await driver.try_submit(unique=unique(name="unique:mail:18"))).is_new
        assert (await driver.try_submit()).is_new

    @case
    async def test_a_resubmitted_job_is_not_a_duplicate_of_itself(self) -> None:
        driver = self.driver()
        keyed = await driver.new(key="a", unique=unique(name="1"), fingerprint=b"1")
        plain = await driver.new(unique=unique(name="2"))
        await driver.store.submit([keyed, plain])
        again = await driver.new(key="a", unique=unique(name="1"), fingerprint=b"1")

        answers = await driver.store.submit([again, plain])

        assert [(each.id, each.is_new, each.is_same, each.is_duplicate) for each in answers] == [
            (keyed.id, False, True, False),
            (plain.id, False, True, False),
        ]

    @case
    async def test_a_later_job_replaces_a_waiting_one(self) -> None:
        driver, other = self.driver(), self.driver()

        for state in (*_BEFORE_A_RUN[:3], JobState.RETRYING):
            key = unique("running", name=f"of {state}", replaces=True)
            first = await driver.make(state, unique=key)
            second = await other.submit(unique=key, queue=f"second {state}", due=HOUR)

            record = await driver.read(first)
            assert record.state is JobState.CANCELLED, state
            assert record.error is not None
            assert (record.error.type_name, record.error.message) == ("JobCancelled", f"replaced by job {second.id}")
            (event,) = await driver.store.events(first.id)
            assert (event.kind, event.state, event.note) == (
                "cancel",
                JobState.CANCELLED,
                f"replaced by job {second.id}",
            )
            assert await driver.lanes(first.queue) == []
        waiting = {timer.id for timer in await driver.timers()}
        live = await driver.store.count_jobs()
        assert (len(waiting), live) == (4, 8)

    @case
    async def test_a_replaced_job_at_the_broker_is_asked_to_end_and_loses_its_key(self) -> None:
        driver = self.driver()
        key = unique(replaces=True)
        first = await driver.dispatch_new(unique=key)

        second = await driver.submit(unique=key)

        record = await driver.read(first)
        assert (record.state, record.cancel_requested) == (JobState.DISPATCHED, f"replaced by job {second.id}")
        await driver.expect_accepted(first, "cancelled")
        assert await driver.try_submit(unique=unique()) == duplicate_of(second)

    @case
    async def test_a_running_job_is_not_replaced(self) -> None:
        driver = self.driver()
        key = unique("running", replaces=True)
        running = await driver.make(JobState.RUNNING, unique=key)

        assert await driver.try_submit(unique=key) == duplicate_of(running)

    @case
    async def test_the_first_or_the_last_of_several_jobs_in_one_call_gets_the_key(self) -> None:
        driver = self.driver()
        kept, replaced = unique(name="kept"), unique(name="replaced", replaces=True)
        jobs = [await driver.new(unique=key) for key in (kept, replaced, kept, replaced, replaced)]
        jobs.append(await driver.new())

        answers = await driver.store.submit(jobs)

        assert [each.is_new for each in answers] == [True, True, False, True, True, True]
        assert (answers[2].id, answers[2].is_duplicate) == (jobs[0].id, True)
        states = {job.id: (await driver.store.get(job.id)) for job in jobs}
        live = [job.id for job in jobs if (found := states[job.id]) is not None and found.state in CHANGEABLE]
        assert live == [jobs[0].id, jobs[4].id, jobs[5].id]

    @case
    async def test_a_name_that_the_database_cannot_store_still_works_as_a_key(self) -> None:
        driver = self.driver()
        key = unique(name="a\0b\ud800☂" + "x" * 500)
        job = await driver.submit(unique=key)

        assert await driver.try_submit(unique=key) == duplicate_of(job)

    @case
    async def test_maintenance_keeps_taken_keys(self) -> None:
        driver = self.driver()
        key, over = unique(name="taken"), unique(name="over", ttl=-1)
        job = await driver.submit(unique=key)
        await driver.submit(unique=over)

        await driver.schedulers.maintain()

        assert await driver.try_submit(unique=key) == duplicate_of(job)
        assert (await driver.try_submit(unique=over)).is_new
