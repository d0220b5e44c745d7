"""Tests of operators' changes: compare-and-set by state and version."""

import itertools
from typing import Any

from taskmq.contracts.jobs import HistoryEntry, JobRecord
from taskmq.model.states import CHANGEABLE, TERMINAL, UNDERWAY, JobState, can_follow
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import BODY, HOUR, error, ids, new_id
from taskmq.testing.runner import case

_LIVE = sorted(CHANGEABLE | UNDERWAY)
_WAITS = (JobState.SCHEDULED, JobState.RETRYING)


class Updates(JobStoreCase):
    """Every guarantee of `update` and `events`."""

    @case
    async def test_exactly_the_transitions_of_the_table_are_allowed(self) -> None:
        driver = self.driver()

        for before, after in itertools.product(_LIVE, JobState):
            where = f"{before} -> {after}"
            job = await driver.make(before, queue=f"q {before} {after}")
            changed = await driver.update(job, after)
            now = await driver.read(job)
            if before is after or can_follow(before, after):
                assert changed == now, where
                assert (now.state, now.version) == (after, job.version + 1), where
                assert (now.finished is not None) is (after in TERMINAL), where
            else:
                assert changed is None, where
                assert now == job, where

    @case
    async def test_recent_actions_are_found_across_all_jobs(self) -> None:
        driver, store = self.driver(), self.store()
        first = await driver.make(JobState.SCHEDULED, tenant="acme", key="order-1", queue="q1")
        await driver.expect_update(first, priority=3)
        second = await driver.make(JobState.QUEUED, queue="q2")
        await driver.update(second, JobState.CANCELLED)
        await driver.update(await driver.read(first), JobState.HELD)

        since = (await store.events(first.id))[0].at
        found = [one for one in await store.actions(since, limit=99) if one.job_id in (first.id, second.id)]
        kinds = [(one.job_id, one.key, one.tenant, one.queue, one.task, one.entry.state) for one in found]
        assert kinds == [
            (first.id, "order-1", "acme", "q1", first.task, JobState.SCHEDULED),
            (second.id, None, second.tenant, "q2", second.task, JobState.CANCELLED),
            (first.id, "order-1", "acme", "q1", first.task, JobState.HELD),
        ]
        assert [one.entry for one in found if one.job_id == first.id] == await store.events(first.id)
        assert await store.actions(since, limit=2) == found[1:]
        assert await store.actions(found[-1].entry.at + 1, limit=9) == []

    @case
    async def test_a_job_that_has_ended_never_changes(self) -> None:
        driver = self.driver()

        for before in sorted(TERMINAL):
            job = await driver.make(before)
            for after in JobState:
                assert await driver.update(job, after) is None, f"{before} -> {after}"
            assert await driver.read(job) == job

    @case
    async def test_an_update_for_another_version_or_state_changes_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        first = await driver.submit(due=HOUR)
        job = await driver.expect_update(first, priority=9)
        stale = [
            first,
            _with(job, version=job.version + 1),
            _with(job, version=0),
            *[_with(job, state=state) for state in JobState if state is not job.state],
        ]

        for each in stale:
            assert await other.update(each, JobState.CANCELLED) is None, (each.state, each.version)

        assert await driver.read(job) == job
        assert len(await driver.store.events(job.id)) == 1

    @case
    async def test_updating_an_unknown_job_changes_nothing(self) -> None:
        driver = self.driver()
        job = await driver.submit()

        for job_id in (new_id(await driver.store.now_ms()), "", "no-uuid", "a\0b"):
            assert await driver.update(_with(job, id=job_id), JobState.CANCELLED) is None

    @case
    async def test_an_update_changes_only_the_given_fields(self) -> None:
        driver, other = self.driver(), self.driver()
        body = b'{"task":"send_mail","args":["' + b"x" * 5_000 + b'"]}'
        due = await driver.store.now_ms() + 2 * HOUR
        changes: list[dict[str, Any]] = [
            {"due": due},
            {"expires": due + HOUR},
            {"expires": None},
            {"priority": 9},
            {"queue": "another"},
            {"body": body},
            {"body": BODY},
            {"cancel_requested": "not needed ☂"},
            {"error": error("no")},
        ]
        job = await driver.submit(due=HOUR, expires=3 * HOUR, key="k")

        for fields in changes:
            changed = await driver.update(job, **fields)
            job = _with(job, version=job.version + 1, **fields)
            assert changed == job, fields
            assert await other.read(job.id) == job, fields

    @case
    async def test_the_event_records_the_action_its_author_and_reason(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.submit(due=HOUR)
        steps: list[tuple[Any, JobState]] = [
            ("change", JobState.SCHEDULED),
            ("hold", JobState.HELD),
            ("release", JobState.SCHEDULED),
            ("retry", JobState.QUEUED),
            ("cancel_requested", JobState.QUEUED),
            ("cancel", JobState.CANCELLED),
        ]
        before = await driver.store.now_ms()

        for kind, after in steps:
            job = await driver.expect_update(job, after, kind=kind, by=f"ann {kind}", note=f"☂ {kind}")

        events = await other.store.events(job.id)
        now = await driver.store.now_ms()
        assert [_without_time(event) for event in events] == [
            HistoryEntry(version=number, at=0, kind=kind, state=after, by=f"ann {kind}", note=f"☂ {kind}")
            for number, (kind, after) in enumerate(steps, 2)
        ]
        assert all(before <= event.at <= now for event in events)

    @case
    async def test_a_job_without_events_has_none(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        await driver.expect_accepted(job, "started")
        await driver.expect_accepted(job, "succeeded")

        assert await driver.store.events(job.id) == []

    @case
    async def test_an_end_records_its_time_and_reason(self) -> None:
        driver = self.driver()
        before = await driver.store.now_ms()

        job = await driver.expect_update(
            await driver.submit(), JobState.CANCELLED, error=error("asked\0for \ud800", "")
        )

        assert job.finished is not None
        assert before <= job.finished <= await driver.store.now_ms()
        assert job.error is not None
        assert job.error.message == "asked\\x00for \\ud800"

    @case
    async def test_only_a_queued_job_is_ready(self) -> None:
        driver = self.driver()

        for before, after in itertools.product(_LIVE, JobState):
            if before is not after and not can_follow(before, after):
                continue
            queue = f"q {before} {after}"
            now = await driver.store.now_ms()
            job = await driver.expect_update(await driver.make(before, queue=queue), after, due=now)
            assert bool(await driver.lanes(queue)) is (job.state is JobState.QUEUED), f"{before} -> {after}"
            batch = await driver.try_dispatch(queue=queue)
            assert (batch is not None and ids(batch.jobs) == [job.id]) is (after is JobState.QUEUED)

    @case
    async def test_only_a_scheduled_job_has_a_timer(self) -> None:
        driver = self.driver()
        due = await driver.store.now_ms() + HOUR

        for before, after in itertools.product(_LIVE, JobState):
            if before is not after and not can_follow(before, after):
                continue
            job = await driver.expect_update(await driver.make(before, queue=f"q {before} {after}"), after, due=due)
            timers = [timer for timer in await driver.timers() if timer.id == job.id]
            assert bool(timers) is (job.state in _WAITS), f"{before} -> {after}"
            assert {timer.due for timer in timers} <= {due}

    @case
    async def test_a_changed_ready_job_moves_to_its_new_lane(self) -> None:
        driver = self.driver()
        job = await driver.submit(priority=1, tenant="acme")

        job = await driver.expect_update(job, priority=8)
        assert [(lane.priority, lane.tenant) for lane in await driver.lanes()] == [(8, "acme")]
        job = await driver.expect_update(job, queue="another")
        assert await driver.lanes() == []
        assert [lane.queue for lane in await driver.lanes("another")] == ["another"]

        batch = await driver.dispatch(queue="another")
        assert [(one.id, one.priority, one.queue) for one in batch.jobs] == [(job.id, 8, "another")]

    @case
    async def test_a_timer_moves_with_its_job(self) -> None:
        driver = self.driver()
        job = await driver.submit(due=HOUR)
        later, earlier = job.due + HOUR, job.due - HOUR // 2

        for due in (later, earlier):
            job = await driver.expect_update(job, due=due)
            assert [(timer.id, timer.due) for timer in await driver.timers()] == [(job.id, due)]

    @case
    async def test_a_dispatch_uses_the_job_as_last_changed(self) -> None:
        driver = self.driver()
        job = await driver.submit(held=True, expires=HOUR)
        job = await driver.expect_update(job, body=b'{"task":"other"}', queue="another", priority=0, expires=None)
        await driver.expect_update(job, JobState.QUEUED, kind="release")

        (one,) = (await driver.dispatch(queue="another")).jobs

        assert (one.body, one.queue, one.priority, one.expires) == (b'{"task":"other"}', "another", 0, None)

    @case
    async def test_a_job_asked_to_stop_can_still_end_normally(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        asked = await driver.request_cancel(await driver.read(job), "not needed")
        assert (asked.state, asked.cancel_requested) == (JobState.DISPATCHED, "not needed")

        ended = await driver.expect_accepted(job, "succeeded", result=b"1")
        assert (ended.state, ended.cancel_requested) == (JobState.SUCCEEDED, "not needed")


def _with(job: JobRecord, **fields: Any) -> JobRecord:
    known = {name: getattr(job, name) for name in job.__struct_fields__}
    return JobRecord(**{**known, **fields})


def _without_time(event: HistoryEntry) -> HistoryEntry:
    return HistoryEntry(version=event.version, at=0, kind=event.kind, state=event.state, by=event.by, note=event.note)
