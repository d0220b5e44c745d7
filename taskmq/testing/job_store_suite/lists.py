"""Tests of reading jobs: single jobs, pages, and counts."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from msgspec.structs import replace

from taskmq.contracts.jobs import JobDetail, JobRecord, StateCounts
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.reports import INTERRUPTED
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.testing.job_store.match import matches
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import BODY, HOUR, QUEUE, JobDriver, error, ids, new_id
from taskmq.testing.runner import case

_NO_UUIDS = ("", "1", "no-uuid", "0" * 500, "ö☂", "a\0b", "\ud800", "'", "00000000-0000-7000-8000-00000000000g")
_TIMES = (
    "submitted_from", "submitted_before", "due_from", "due_before", "finished_from", "finished_before",
)  # fmt: skip
_OF_JOBS: list[JobState] = [state for state in JobState if state is not JobState.UNKNOWN]


class Lists(JobStoreCase):
    """Every guarantee of `get`, `list_jobs` and `count_jobs`."""

    @case
    async def test_a_job_can_be_read_in_every_state(self) -> None:
        driver, other = self.driver(), self.driver()

        for state in _OF_JOBS:
            job = await driver.make(state, tenant="acme", key=f"{state}")
            record = await other.read(job.id)
            assert record == job
            assert (record.state, record.body, record.key) == (state, BODY, f"{state}")
            assert (record.finished is not None) is (state in TERMINAL), state

    @case
    async def test_an_unknown_id_finds_no_job(self) -> None:
        driver = self.driver()
        await driver.submit()

        for job_id in (new_id(await driver.store.now_ms()), *_NO_UUIDS):
            assert await driver.store.get(job_id) is None, job_id
            assert await driver.store.events(job_id) == [], job_id
            assert await driver.store.attempts(job_id) == [], job_id

    @case
    async def test_jobs_are_listed_newest_first_without_bodies_and_results(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await driver.make(state, detail=JobDetail(description=f"{state}")) for state in _OF_JOBS]

        page = await other.store.list_jobs()

        assert ids(page.jobs) == ids(jobs)[::-1]
        assert page.after is None
        for record, job in zip(page.jobs, jobs[::-1], strict=True):
            assert _list_fields(record) == _list_fields(job)
            assert (record.body, record.result) == (b"", b"")

    @case
    async def test_an_empty_store_returns_an_empty_page(self) -> None:
        page = await self.store().list_jobs()

        assert (page.jobs, page.after) == ([], None)
        assert await self.store().count_jobs() == 0

    @case
    async def test_a_page_continues_where_the_last_one_ended(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [*await driver.submit_many(7), *[await driver.make(state) for state in TERMINAL]]
        newest_first = sorted(ids(jobs), reverse=True)

        for size in (1, 2, 3, 5, len(jobs) - 1, len(jobs), 50):
            assert await _pages([driver, other], size=size) == newest_first, size

    @case
    async def test_pages_stay_stable_while_jobs_are_added_changed_and_ended(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = await driver.submit_many(10)
        first = await driver.store.list_jobs(limit=4)

        await driver.submit_many(3)
        await driver.expect_update(jobs[2], JobState.CANCELLED, kind="cancel")
        await driver.expect_update(jobs[3], JobState.HELD, kind="hold")
        rest = await _pages([other], size=3, after=first.after)

        assert ids(first.jobs) + rest == ids(jobs)[::-1]

    @case
    async def test_a_job_that_ends_during_listing_is_seen_once(self) -> None:
        driver = self.driver()
        await driver.submit_many(6)
        batch = await driver.dispatch()
        first = await driver.store.list_jobs(limit=3)

        for job in batch.jobs:
            await driver.expect_accepted(job, "succeeded")

        assert ids(first.jobs) + await _pages([driver], size=2, after=first.after) == sorted(
            ids(batch.jobs), reverse=True
        )

    @case
    async def test_a_count_stops_at_its_cap(self) -> None:
        driver = self.driver()
        await driver.submit_many(4, task="a")
        for state in (JobState.SUCCEEDED, JobState.FAILED):
            await driver.make(state, task="a")
        await driver.submit(task="b")
        which = JobFilter(tasks=("a",))

        assert await driver.store.count_jobs(which) == 6
        assert await driver.store.count_jobs(which, cap=6) == 6
        assert await driver.store.count_jobs(which, cap=5) == 6
        assert await driver.store.count_jobs(which, cap=2) == 3
        assert await driver.store.count_jobs(cap=7) == 7

    @case
    async def test_jobs_are_counted_by_state_until_many_are_examined(self) -> None:
        driver = self.driver()
        began = await driver.store.now_ms()
        await driver.submit_many(3, task="a")
        for state in (JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED):
            await driver.make(state, task="a")
        await driver.submit(task="b")
        live, ended = {JobState.QUEUED: 3}, {JobState.SUCCEEDED: 2, JobState.FAILED: 1}
        store, which = driver.store, JobFilter(tasks=("a",))

        assert await store.count_states(which) == StateCounts(live | ended, is_exact=True)
        assert (await store.count_states()).counts == {JobState.QUEUED: 4} | ended
        assert (await store.count_states(JobFilter(states=frozenset({JobState.FAILED})))).counts == {
            JobState.FAILED: 1
        }
        assert (await store.count_states(JobFilter(submitted_from=began, submitted_before=began + HOUR))).is_exact
        assert await store.count_states(JobFilter(submitted_before=began)) == StateCounts({}, is_exact=True)
        assert await store.count_states(JobFilter(tasks=("none",))) == StateCounts({}, is_exact=True)
        some = await store.count_states(cap=2)
        assert (sum(some.counts.values()), some.is_exact) == (4, False)

    @case
    async def test_a_filter_by_state_finds_exactly_the_jobs_in_it(self) -> None:
        driver = self.driver()
        jobs = {state: [await driver.make(state), await driver.make(state)] for state in _OF_JOBS}

        for state in _OF_JOBS:
            assert await _matching_ids(driver, states=frozenset({state})) == _id_set(jobs[state]), state
        for states in (TERMINAL, UNDERWAY, frozenset({JobState.QUEUED, JobState.FAILED})):
            assert await _matching_ids(driver, states=states) == _id_set(chain(*(jobs[state] for state in states)))
        assert await _matching_ids(driver, states=frozenset({JobState.UNKNOWN})) == set()

    @case
    async def test_a_filter_by_tenant_distinguishes_no_tenant_from_all(self) -> None:
        driver = self.driver()
        none, acme = await _live_and_ended(driver), await _live_and_ended(driver, tenant="acme")
        other = await _live_and_ended(driver, tenant="acme2")

        assert await _matching_ids(driver) == _id_set([*none, *acme, *other])
        assert await _matching_ids(driver, tenant="") == _id_set(none)
        assert await _matching_ids(driver, tenant="acme") == _id_set(acme)
        assert await _matching_ids(driver, tenant="nobody") == set()

    @case
    async def test_a_filter_by_names_finds_any_of_them(self) -> None:
        driver = self.driver()
        a = await _live_and_ended(driver, task="a", queue="qa", key="ka")
        b = await _live_and_ended(driver, task="b", queue="qb", key="kb")
        await _live_and_ended(driver, task="c", queue="qc")

        for name, letter in (("tasks", ""), ("queues", "q")):
            assert await _matching_ids(driver, **{name: (f"{letter}a",)}) == _id_set(a), name
            assert await _matching_ids(driver, **{name: (f"{letter}a", f"{letter}b", "x")}) == _id_set([*a, *b]), name
            assert await _matching_ids(driver, **{name: ("x",)}) == set(), name
        assert await _matching_ids(driver, keys=(str(a[0].key), str(b[1].key), "x")) == {a[0].id, b[1].id}

    @case
    async def test_a_filter_by_task_prefix_matches_literally(self) -> None:
        driver = self.driver()
        jobs = {
            task: await _live_and_ended(driver, task=task)
            for task in ("billing", "billing.pay", "billing_pay", "billingxpay", "Billing.pay", "bill", "100%")
        }

        for prefix in ("billing", "billing.", "billing_", "b", "billing%", "100%", "1_0", "BILLING"):
            expected = [job for task, each in jobs.items() if task.startswith(prefix) for job in each]
            assert await _matching_ids(driver, task_prefix=prefix) == _id_set(expected), prefix

    @case
    async def test_a_filter_by_error_finds_the_jobs_that_failed_with_it(self) -> None:
        driver = self.driver()
        jobs = {
            kind: await driver.expect_accepted(await driver.dispatch_new(), "failed", error=error("no", kind))
            for kind in ("TimeoutError", "ValueError", "ssl.SSLError")
        }
        await driver.make(JobState.SUCCEEDED)
        await driver.make(JobState.QUEUED)

        assert await _matching_ids(driver, errors=("TimeoutError",)) == {jobs["TimeoutError"].id}
        two = ("ssl.SSLError", "ValueError")
        assert await _matching_ids(driver, errors=two) == _id_set(jobs[kind] for kind in two)
        assert await _matching_ids(driver, errors=("SSLError",)) == set()

    @case
    async def test_a_filter_by_time_includes_its_start_and_excludes_its_end(self) -> None:
        driver = self.driver()
        jobs = [await driver.submit(due=hours * HOUR) for hours in range(4)]
        jobs += await _live_and_ended(driver)
        instants = {at for job in jobs for at in (job.due, job.submitted, job.finished) if at is not None}

        for instant in (0, *instants, *(instant + 1 for instant in instants)):
            for name in _TIMES:
                await _expect_matches(driver, jobs, replace(EVERYTHING, **{name: instant}))
        first, last = jobs[1].due, jobs[3].due
        assert await _matching_ids(driver, due_from=first, due_before=last) == _id_set(jobs[1:3])

    @case
    async def test_a_filter_by_attempt_wait_and_duration_sets_minimums(self) -> None:
        driver = self.driver()
        jobs: list[JobRecord] = []
        for attempts, wait, ran in ((1, 0, 10), (2, 500, 5_000), (3, 60_000, 5_001)):
            job = await driver.dispatch_new()
            for _ in range(attempts - 1):
                await driver.expect_accepted(job, "retry", error=error("again"))
                job = await driver.again(job)
            due = (await driver.read(job)).due
            jobs.append(await driver.expect_accepted(job, "succeeded", started=due + wait, ran=ran))

        for least, expected in ((1, jobs), (2, jobs[1:]), (3, jobs[2:]), (4, [])):
            assert await _matching_ids(driver, min_attempt=least) == _id_set(expected), least
        for least, expected in ((10, jobs), (11, jobs[1:]), (5_000, jobs[1:]), (5_001, jobs[2:]), (5_002, [])):
            assert await _matching_ids(driver, min_ran=least) == _id_set(expected), least
        for least, expected in ((0, jobs), (1, jobs[1:]), (500, jobs[1:]), (501, jobs[2:]), (60_001, [])):
            assert await _matching_ids(driver, min_waited=least) == _id_set(expected), least

    @case
    async def test_the_duration_of_a_running_job_lasts_until_now(self) -> None:
        driver = self.driver()
        now = await driver.store.now_ms()
        jobs: list[JobRecord] = []
        for ago in (0, 60_000, 2 * HOUR):
            job = await driver.dispatch_new()
            jobs.append(await driver.expect_accepted(job, "started", started=now - ago))
        again = await driver.dispatch_new()
        await driver.expect_accepted(again, "retry", started=now - 3 * HOUR, ran=10, delay=HOUR, error=error("again"))

        for least, expected in ((0, jobs), (60_000, jobs[1:]), (2 * HOUR, jobs[2:]), (3 * HOUR, [])):
            assert await _matching_ids(driver, min_ran=least) == _id_set(expected), least
            assert await driver.store.count_jobs(replace(EVERYTHING, min_ran=least)) == len(expected), least
        assert await _matching_ids(driver, min_ran=60_000, states=frozenset({JobState.RUNNING})) == _id_set(jobs[1:])

    @case
    async def test_the_wait_of_a_job_that_never_ran_lasts_until_now(self) -> None:
        driver = self.driver()
        now = await driver.store.now_ms()
        overdue = await driver.expect_update(await driver.submit(), due=now - HOUR)
        at_broker = await driver.dispatch_new(queue="paused")
        late = await driver.expect_update(await driver.submit(queue="late"), due=now - 2 * HOUR)
        begun = await driver.expect_accepted(
            (await driver.dispatch(queue="late")).jobs[0], "started", started=now - HOUR - 60_000
        )
        for elsewhere in (
            await driver.submit(due=now + HOUR),
            await driver.expect_update(await driver.submit(held=True), due=now - HOUR),
            await driver.expect_update(await driver.submit(queue="withdrawn"), due=now - HOUR),
        ):
            if elsewhere.queue == "withdrawn":
                await driver.expect_update(elsewhere, JobState.CANCELLED, kind="cancel")

        assert late.id == begun.id
        assert await _matching_ids(driver, min_waited=HOUR) == _id_set([overdue])
        assert await _matching_ids(driver, min_waited=HOUR - 120_000) == _id_set([overdue, begun])
        assert await _matching_ids(driver, min_waited=0) == _id_set([overdue, begun]) | {at_broker.id}
        assert await _matching_ids(driver, min_waited=2 * HOUR) == set()

    @case
    async def test_the_wait_of_a_job_that_was_interrupted_ends_at_its_first_start(self) -> None:
        driver = self.driver()
        now = await driver.store.now_ms()
        await driver.expect_update(await driver.submit(), due=now - 3 * HOUR)
        (job,) = (await driver.dispatch()).jobs
        why = ErrorRecord(type_name=INTERRUPTED, message="its worker stopped")
        await driver.expect_accepted(job, "interrupted", started=now - 3 * HOUR + 10, error=why)
        assert await _matching_ids(driver, min_waited=11) == set()
        job = await driver.again(job)
        assert await _matching_ids(driver, min_waited=11) == set()

        record = await driver.expect_accepted(job, "succeeded", started=now, ran=1)

        assert await _matching_ids(driver, min_waited=11) == set()
        assert await _matching_ids(driver, min_waited=10) == _id_set([record])

    @case
    async def test_a_filter_by_labels_requires_all_of_them(self) -> None:
        driver = self.driver()
        red = await _live_and_ended(driver, detail=JobDetail(labels={"team": "red", "größe ☂": 'x "y"'}))
        blue = await _live_and_ended(driver, detail=JobDetail(labels={"team": "blue", "größe ☂": 'x "y"'}))
        await _live_and_ended(driver, detail=JobDetail(description="team"))
        await _live_and_ended(driver)

        assert await _matching_ids(driver, labels=(("team", "red"),)) == _id_set(red)
        assert await _matching_ids(driver, labels=(("größe ☂", 'x "y"'),)) == _id_set([*red, *blue])
        assert await _matching_ids(driver, labels=(("größe ☂", 'x "y"'), ("team", "blue"))) == _id_set(blue)
        assert await _matching_ids(driver, labels=(("team", "re"),)) == set()
        assert await _matching_ids(driver, labels=(("team", "red"), ("team", "blue"))) == set()

    @case
    async def test_a_filter_by_ids_ignores_invalid_ids(self) -> None:
        driver = self.driver()
        live, ended = await _live_and_ended(driver)
        await driver.submit()

        assert await _matching_ids(driver, ids=(live.id, ended.id, *_NO_UUIDS)) == {live.id, ended.id}
        assert await _matching_ids(driver, ids=_NO_UUIDS) == set()

    @case
    async def test_the_conditions_of_a_filter_apply_together(self) -> None:
        driver = self.driver()
        jobs = [
            await driver.make(state, task=task, tenant=tenant, queue=QUEUE)
            for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.HELD)
            for task in ("a.x", "a.y", "b.x")
            for tenant in ("", "acme")
        ]
        ended = frozenset({JobState.SUCCEEDED, JobState.FAILED})

        for which in (
            EVERYTHING,
            JobFilter(tenant="acme", states=ended, task_prefix="a."),
            JobFilter(tenant="", tasks=("a.x", "b.x"), task_prefix="a"),
            JobFilter(states=frozenset({JobState.FAILED}), errors=("ValueError",), tasks=("b.x",)),
            JobFilter(tenant="acme", queues=(QUEUE,), states=frozenset({JobState.HELD}), min_attempt=1),
            JobFilter(tenant="acme", ids=tuple(ids(jobs)[:5]), task_prefix="a.x"),
        ):
            await _expect_matches(driver, jobs, which)

    @case
    async def test_filtered_pages_are_complete(self) -> None:
        driver = self.driver()
        jobs = [await driver.submit(task=f"t{number % 3}", tenant="acme") for number in range(12)]
        jobs += [await driver.make(JobState.SUCCEEDED, task=f"t{number % 3}", tenant="acme") for number in range(6)]
        await driver.submit(task="t1")
        which = JobFilter(tenant="acme", tasks=("t1",))

        for size in (1, 2, 4, 6):
            found = await _pages([driver], which, size=size)
            assert found == [job.id for job in jobs[::-1] if job.task == "t1"], size


def _list_fields(job: JobRecord) -> dict[str, Any]:
    """Return the fields of a job that a list shows."""
    return {
        name: getattr(job, name) for name in job.__struct_fields__ if name not in {"body", "result", "content_type"}
    }


def _id_set(jobs: Iterable[JobRecord]) -> set[str]:
    return {job.id for job in jobs}


async def _live_and_ended(driver: JobDriver, **fields: Any) -> list[JobRecord]:
    """Create a held and a succeeded job, with distinct keys if `key` is given."""
    key = fields.pop("key", None)
    keys = [None, None] if key is None else [f"{key}1", f"{key}2"]
    held = await driver.submit(held=True, key=keys[0], **fields)
    ended = await driver.expect_accepted(await driver.dispatch_new(key=keys[1], **fields), "succeeded")
    return [held, ended]


async def _matching_ids(driver: JobDriver, **fields: Any) -> set[str]:
    """Return the ids that match the filter, after checking their count."""
    which = JobFilter(**fields)
    found = await _pages([driver], which, size=50)
    assert len(found) == len(set(found))
    assert await driver.store.count_jobs(which) == len(found)
    return set(found)


async def _expect_matches(driver: JobDriver, jobs: list[JobRecord], which: JobFilter) -> None:
    found = await _pages([driver], which, size=50)
    now = await driver.store.now_ms()
    assert found == sorted((job.id for job in jobs if matches(which, job, now=now)), reverse=True), which


async def _pages(
    drivers: list[JobDriver], which: JobFilter = EVERYTHING, *, size: int, after: str | None = None
) -> list[str]:
    """Return all pages from a cursor on, each read by the next of these stores."""
    found: list[str] = []
    for turn in range(10_000):
        page = await drivers[turn % len(drivers)].store.list_jobs(which, after=after, limit=size)
        assert len(page.jobs) <= size
        assert len(page.jobs) == size or page.after is None or page.is_bounded
        found += ids(page.jobs)
        if (after := page.after) is None:
            return found
    raise AssertionError("the list of pages does not end")
