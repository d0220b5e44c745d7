"""Tests of submission: new jobs and resubmitted ones."""

import asyncio

from msgspec.structs import replace

from taskmq.contracts.jobs import JobDetail, Submitted
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import BODY, HOUR, QUEUE, ids, new_id
from taskmq.testing.runner import case

_MANY = 500
_SUBMITTERS = 50


class Submissions(JobStoreCase):
    """Every guarantee of `JobStore.submit` and `find_key`."""

    @case
    async def test_a_job_is_stored_as_submitted(self) -> None:
        driver, other = self.driver(), self.driver()
        detail = JobDetail(
            description="größe ☂",
            owner="ann",
            labels={"team": "ops", "☂": "x=y"},
            definition="mail",
            definition_version=3,
            retry_of=new_id(1),
        )
        job = await driver.new(
            tenant="acme", key="order ☂", task="mail.send", priority=7, due=HOUR, expires=2 * HOUR, detail=detail
        )

        submitted = await driver.store.submit([job])

        assert submitted == [Submitted(job.id, True, True, JobState.SCHEDULED, 1)]
        record = await other.read(job.id)
        for name in ("id", "tenant", "key", "task", "queue", "priority", "due", "expires", "body", "detail"):
            assert getattr(record, name) == getattr(job, name), name
        assert (record.state, record.version, record.attempt, record.token) == (JobState.SCHEDULED, 1, 1, 0)
        assert (record.dispatched, record.started, record.finished, record.worker) == (None, None, None, "")
        assert (record.cancel_requested, record.error, record.result) == (None, None, b"")

    @case
    async def test_omitted_fields_have_their_defaults(self) -> None:
        driver = self.driver()
        before = await driver.store.now_ms()

        record = await driver.submit()

        after = await driver.store.now_ms()
        assert (record.tenant, record.key, record.expires, record.detail) == ("", None, None, None)
        assert record.priority == 4
        assert before <= record.submitted <= after

    @case
    async def test_a_job_with_a_past_time_is_queued_and_due_now(self) -> None:
        driver = self.driver()

        for due in (0, 1, await driver.store.now_ms() - HOUR):
            before = await driver.store.now_ms()
            job = await driver.new(priority=5)
            job = type(job)(id=job.id, task=job.task, queue=job.queue, due=due, body=BODY)
            (submitted,) = await driver.store.submit([job])
            record = await driver.read(job.id)
            assert submitted.state is record.state is JobState.QUEUED
            assert before <= record.due <= await driver.store.now_ms()

    @case
    async def test_a_job_with_a_future_time_is_scheduled(self) -> None:
        driver = self.driver()

        record = await driver.submit(due=HOUR)

        assert record.state is JobState.SCHEDULED
        assert await driver.lanes() == []

    @case
    async def test_a_job_can_be_submitted_held_with_any_time(self) -> None:
        driver = self.driver()

        records = [await driver.submit(held=True), await driver.submit(held=True, due=HOUR)]

        assert [record.state for record in records] == [JobState.HELD] * 2
        assert await driver.lanes() == []

    @case
    async def test_many_jobs_in_one_call_are_answered_in_order(self) -> None:
        driver = self.driver()
        jobs = [await driver.new(key=f"{number}", queue=f"q{number % 7}") for number in range(_MANY)]

        # Not in order of id.
        submitted = await driver.store.submit(jobs[::-1])

        assert [each.id for each in submitted] == ids(jobs)[::-1]
        assert all(each.is_new for each in submitted)
        assert await driver.store.count_jobs() == _MANY

    @case
    async def test_submitting_nothing_succeeds(self) -> None:
        assert await self.store().submit([]) == []

    @case
    async def test_a_key_identifies_one_job_of_its_tenant(self) -> None:
        driver, other = self.driver(), self.driver()
        first = await driver.submit(tenant="acme", key="order-17", fingerprint=b"1" * 16)

        again = await other.try_submit(tenant="acme", key="order-17", fingerprint=b"1" * 16)
        changed = await other.try_submit(tenant="acme", key="order-17", fingerprint=b"2" * 16)

        assert again == Submitted(first.id, False, True, JobState.QUEUED, 1)
        assert changed == Submitted(first.id, False, False, JobState.QUEUED, 1)
        assert await driver.store.count_jobs() == 1
        for tenant, key in (("acme", "order-18"), ("", "order-17"), ("acme2", "order-17"), ("acme", "ORDER-17")):
            assert (await other.try_submit(tenant=tenant, key=key, fingerprint=b"1" * 16)).is_new

    @case
    async def test_a_repeated_submission_returns_the_current_state_of_the_job(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new(key="order-17", fingerprint=b"1")

        running = await driver.expect_accepted(job, "started")
        assert await driver.try_submit(key="order-17", fingerprint=b"1") == Submitted(
            job.id, False, True, JobState.RUNNING, running.version
        )
        ended = await driver.expect_accepted(job, "succeeded")
        assert await driver.try_submit(key="order-17", fingerprint=b"1") == Submitted(
            job.id, False, True, JobState.SUCCEEDED, ended.version
        )

    @case
    async def test_one_key_twice_in_one_call_creates_one_job(self) -> None:
        driver = self.driver()
        first, same, other, last = [
            await driver.new(key="order-17", fingerprint=fingerprint) for fingerprint in (b"1", b"1", b"2", b"1")
        ]

        submitted = await driver.store.submit([first, same, other, last])

        assert [each.id for each in submitted] == [first.id] * 4
        assert [each.is_new for each in submitted] == [True, False, False, False]
        assert [each.is_same for each in submitted] == [True, True, False, True]
        assert [await driver.store.get(each.id) for each in (same, other, last)] == [None] * 3
        assert len((await driver.dispatch()).jobs) == 1

    @case
    async def test_only_one_of_many_concurrent_submitters_of_a_key_creates_the_job(self) -> None:
        drivers = [self.driver() for _ in range(2)]

        for key in ("a", "b", "c"):
            answers = await asyncio.gather(
                *(drivers[number % 2].try_submit(key=key, fingerprint=b"1") for number in range(_SUBMITTERS))
            )
            assert [answer.is_new for answer in answers].count(True) == 1
            assert len({answer.id for answer in answers}) == 1
            assert all(answer.is_same for answer in answers)
        assert await drivers[0].store.count_jobs() == 3

    @case
    async def test_submissions_with_crossing_keys_do_not_deadlock(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        keys = [f"{number}" for number in range(20)]

        async def submit(number: int) -> list[Submitted]:
            driver = drivers[number % 2]
            order = keys if number % 4 < 2 else keys[::-1]
            return await driver.store.submit([await driver.new(key=key) for key in order])

        answers = await asyncio.gather(*(submit(number) for number in range(8)))

        assert sum(each.is_new for answer in answers for each in answer) == len(keys)
        assert await drivers[0].store.count_jobs() == len(keys)

    @case
    async def test_a_key_is_found_in_its_tenant_even_after_its_job_ended(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new(tenant="acme", key="order ☂")

        assert await other.store.find_key("acme", "order ☂") == job.id
        await driver.expect_accepted(job, "succeeded")
        assert await other.store.find_key("acme", "order ☂") == job.id
        assert await other.store.find_key("", "order ☂") is None
        assert await other.store.find_key("acme", "order") is None
        assert await other.store.find_key("nobody", "order ☂") is None

    @case
    async def test_a_key_can_have_five_hundred_characters(self) -> None:
        driver = self.driver()
        keys = ["ö" * 499 + end for end in "ab"]

        records = [await driver.submit(key=key) for key in keys]

        assert [record.key for record in records] == keys
        assert [await driver.store.find_key("", key) for key in keys] == ids(records)

    @case
    async def test_a_live_job_is_not_created_again_under_its_id(self) -> None:
        """Simulates a lost answer: the caller repeats the same submission."""
        driver = self.driver()
        job = await driver.new()
        await driver.store.submit([job])

        assert await driver.store.submit([job]) == [Submitted(job.id, False, True, JobState.QUEUED, 1)]

        assert len((await driver.dispatch()).jobs) == 1
        assert await driver.store.count_jobs() == 1

    @case
    async def test_the_first_of_two_jobs_with_one_id_or_key_in_a_call_is_kept(self) -> None:
        driver, other = self.driver(), self.driver()
        first = await driver.new(body=_body(5_000), detail=JobDetail(owner="ann", labels={"of": "first"}))
        keyed = await driver.new(key="k", detail=JobDetail(description="keyed"))
        jobs = [
            first,
            replace(first, body=_body(6_000), detail=JobDetail(owner="bob")),
            keyed,
            await driver.new(key="k", body=_body(7_000), detail=JobDetail(description="again")),
            await driver.new(body=_body(8_000)),
        ]

        answers = await driver.store.submit(jobs)

        assert [answer.id for answer in answers] == [first.id, first.id, keyed.id, keyed.id, jobs[4].id]
        assert [answer.is_new for answer in answers] == [True, False, True, False, True]
        for job in (first, keyed, jobs[4]):
            kept = await other.read(job.id)
            assert (kept.body, kept.detail) == (job.body, job.detail)
        assert await other.store.get(jobs[3].id) is None

    @case
    async def test_a_body_of_one_mebibyte_is_stored(self) -> None:
        driver = self.driver()
        body = b'{"task":"t","args":["' + b"x" * 2**20 + b'"]}'

        job = await driver.dispatch_new(body=body)

        assert job.body == body
        assert (await driver.read(job)).body == body
        ended = await driver.expect_accepted(job, "succeeded")
        assert ended.body == body

    @case
    async def test_bodies_of_all_sizes_fit_in_one_call(self) -> None:
        driver = self.driver()
        bodies = [_body(size) for size in (0, 100, 1_500, 5_000, 100_000, 3)]
        jobs = [await driver.new(body=body) for body in bodies]

        await driver.store.submit(jobs)

        assert [(await driver.read(job.id)).body for job in jobs] == bodies
        assert {job.id: job.body for job in (await driver.dispatch()).jobs} == dict(
            zip(ids(jobs), bodies, strict=True)
        )

    @case
    async def test_an_expired_job_is_accepted_and_ends_at_dispatch(self) -> None:
        driver = self.driver()

        record = await driver.submit(expires=-1)

        assert record.state is JobState.QUEUED
        assert await driver.try_dispatch() is None
        assert await driver.state(record) is JobState.EXPIRED

    @case
    async def test_names_of_jobs_can_contain_sql_special_characters(self) -> None:
        driver = self.driver()
        names = {"tenant": "a'b%_\\", "key": "'; drop table job --", "task": "a.b:c-d_e", "queue": f"{QUEUE}'_%\\"}

        record = await driver.submit(**names)

        assert {name: getattr(record, name) for name in names} == names
        assert [lane.tenant for lane in await driver.lanes(names["queue"])] == [names["tenant"]]


def _body(size: int) -> bytes:
    return b'{"task":"t%s"}' % (b"x" * size)
