"""Tests of forgotten and forged tokens."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.contracts.jobs import AppliedReport, JobRecord
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditEntry
from taskmq.model.jobs.proofs import ReportKey, new_report_key
from taskmq.model.jobs.reports import MOST_UNHEEDED, UNHEEDED, Report, ReportKind, after_report
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import END_KINDS, HOUR, JobDriver, after, forged_token, later
from taskmq.testing.runner import case

_QUEUE: Final = "taskmq.reports.suite.0"
_BEGUN: Final[Sequence[ReportKind]] = ("started", "detached", "retry", "snoozed", "interrupted", "refused")
_STATES: Final = tuple(state for state in JobState if state is not JobState.UNKNOWN)
_LIVE: Final = tuple(state for state in _STATES if state not in TERMINAL)
_LARGEST: Final = 2**53 - 1


class ReportProofs(JobStoreCase):
    """Reports whose token the store does not remember."""

    @case
    async def test_a_report_with_an_invented_token_changes_no_job(self) -> None:
        driver, other = self.driver(), self.driver()
        (key, *_) = await driver.schedulers.report_keys()

        for state in _STATES:
            job = await driver.make(state)
            dependent = None if state in TERMINAL else await driver.submit(detail=after(job), queue="dependent")
            before, attempts = await driver.read(job), await driver.store.attempts(job.id)
            forged = [
                Report(id=job.id, token=token, proof=proof, kind=kind, worker="evil", delay=HOUR, result=b"forged")
                for token in _forged_tokens(job.token)
                for proof in _wrong_proofs(key, job.id, token)
                for kind in (END_KINDS if proof else (*END_KINDS, *_BEGUN))
            ]

            applied = await other.schedulers.apply(forged, came_by=_QUEUE)

            results = [(each.outcome in ("superseded", "invented"), each.state) for each in applied]
            assert results == [(True, state)] * len(forged), state
            assert "invented" in {each.outcome for each in applied}
            assert _without_event_fields(await other.read(job)) == _without_event_fields(before), state
            assert await driver.store.attempts(job.id) == attempts, state
            events = [event for event in await driver.store.events(job.id) if event.by == "evil"]
            assert {event.kind for event in events} <= {"superseded", "unknown_attempt"}, state
            assert {event.state for event in events} == {state}
            if dependent is not None:
                assert await driver.release() == set()
                assert await driver.state(dependent) is JobState.WAITING
        assert await _audit_entries(driver) == []

    @case
    async def test_forged_reports_add_only_a_few_events_to_a_job(self) -> None:
        driver, other = self.driver(), self.driver()
        for state in (JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED):
            job = await driver.make(state)
            many = [
                Report(id=job.id, token=token, kind=kind, worker="evil")
                for kind in ("succeeded", "retry", "started")
                for token in _forged_tokens(job.token)
            ]

            for store in (driver, other, driver):
                applied = await store.schedulers.apply(many, came_by=_QUEUE)
                assert {each.outcome for each in applied} <= {"superseded", "invented"}

            events = [event for event in await driver.store.events(job.id) if event.by == "evil"]
            assert len(events) == MOST_UNHEEDED, state
            assert {event.kind for event in events} <= UNHEEDED

    @case
    async def test_a_proven_end_is_recorded_despite_many_forged_reports(self) -> None:
        driver, other = self.driver(), self.driver()
        (key, *_) = await driver.schedulers.report_keys()
        job = await driver.dispatch_new()
        forged = [Report(id=job.id, token=_LARGEST, kind="started", worker="evil")]
        for _ in range(MOST_UNHEEDED + 1):
            await other.schedulers.apply(forged, came_by=_QUEUE)
        token = later(job.token)
        end = Report(id=job.id, token=token, proof=key.prove(job.id, token, _QUEUE), kind="succeeded", worker="w1")

        (applied,) = await other.schedulers.apply([end], came_by=_QUEUE)

        assert (applied.outcome, applied.state) == ("accepted", JobState.SUCCEEDED)
        last = (await driver.store.events(job.id))[-1]
        assert (last.kind, last.by) == ("unknown_attempt", "w1")

    @case
    async def test_a_job_continues_normally_despite_forged_tokens(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        applied = await driver.report(job, "succeeded", token=_LARGEST, result=b"forged", worker="evil")
        running = await driver.expect_accepted(job, "started", worker="w1")
        again = await driver.report(job, "failed", token=later(job.token), worker="evil")
        record = await driver.expect_accepted(job, "succeeded", result=b"mine", worker="w1")

        assert (applied.outcome, again.outcome) == ("invented", "invented")
        assert (running.state, running.worker) == (JobState.RUNNING, "w1")
        assert (record.state, record.result, record.worker) == (JobState.SUCCEEDED, b"mine", "w1")

    @case
    async def test_a_proven_end_of_a_forgotten_dispatch_counts_and_is_recorded(self) -> None:
        driver, other = self.driver(), self.driver()
        (key, *_) = await driver.schedulers.report_keys()

        for state in _LIVE:
            for kind in END_KINDS:
                job = await driver.make(state, queue=f"{state} {kind}", tenant="acme")
                proven = _proven_report(key, job, kind)
                (applied,) = await driver.schedulers.apply([proven], came_by=_QUEUE)
                ended = after_report(kind, cancel_requested=False)
                assert applied == AppliedReport("accepted", ended, job.queue), f"{state}, {kind}"
                record = await other.read(job)
                assert (record.state, record.version, record.worker) == (ended, job.version + 1, "w8")
                event = (await other.store.events(job.id))[-1]
                assert (event.kind, event.state, event.by) == ("unknown_attempt", ended, "w8")
                (entry,) = await _audit_entries(driver, job)
                assert (entry.action, entry.tenant, entry.user, entry.via) == ("job.end", "acme", "w8", "report")
                assert entry.after == {"state": str(ended), "attempt": 1}
                # The job is neither ready nor scheduled any more.
                assert await driver.lanes(job.queue) == []
                assert job.id not in [timer.id for timer in await driver.timers()]
                (again,) = await driver.schedulers.apply([proven], came_by=_QUEUE)
                assert again.outcome == "superseded"
                assert len(await _audit_entries(driver, job)) == 1

    @case
    async def test_a_start_in_a_forgotten_dispatch_is_recorded_and_the_job_reruns(self) -> None:
        driver = self.driver()
        (key, *_) = await driver.schedulers.report_keys()

        for kind in _BEGUN:
            job = await driver.submit(queue=kind)
            (applied,) = await driver.schedulers.apply([_proven_report(key, job, kind)], came_by=_QUEUE)
            assert applied == AppliedReport("superseded", JobState.QUEUED, job.queue), kind
            (event,) = await driver.store.events(job.id)
            assert (event.kind, event.state) == ("unknown_attempt", JobState.QUEUED)
            assert [one.id for one in (await driver.dispatch(queue=kind)).jobs] == [job.id]
        assert await _audit_entries(driver) == []

    @case
    async def test_of_two_dispatches_with_one_number_only_the_recorded_one_counts(self) -> None:
        driver = self.driver()
        (key, *_) = await driver.schedulers.report_keys()
        job = await driver.dispatch_new()
        lost = await driver.read(job)

        proven = _proven_report(key, lost, "succeeded", token=forged_token(job.token))
        (applied,) = await driver.schedulers.apply([proven], came_by=_QUEUE)

        assert applied.outcome == "superseded"
        (event,) = await driver.store.events(job.id)
        assert (event.kind, event.state, event.by) == ("unknown_attempt", JobState.DISPATCHED, "w8")
        assert (await driver.expect_accepted(job, "failed")).state is JobState.FAILED
        # The same holds after the job has ended.
        (applied,) = await driver.schedulers.apply([proven], came_by=_QUEUE)
        assert (applied.outcome, applied.state) == ("superseded", JobState.FAILED)
        assert await _audit_entries(driver) == []

    @case
    async def test_a_proof_is_valid_only_for_the_queue_of_its_invitation(self) -> None:
        driver = self.driver()
        (key, *_) = await driver.schedulers.report_keys()
        job = await driver.submit()

        elsewhere = await driver.schedulers.apply(
            [_proven_report(key, job, "succeeded")], came_by="taskmq.reports.other.0"
        )
        here = await driver.schedulers.apply([_proven_report(key, job, "succeeded")], came_by=_QUEUE)

        assert [each.outcome for each in (*elsewhere, *here)] == ["invented", "accepted"]

    @case
    async def test_a_proof_by_an_older_key_is_valid_until_the_key_is_deleted(self) -> None:
        driver, other = self.driver(), self.driver()
        (first,) = await driver.schedulers.report_keys()
        kept, forgotten, newest = [await driver.submit(queue=name) for name in ("kept", "forgotten", "newest")]

        rotated = await driver.schedulers.rotate_report_key()
        keys = await other.schedulers.report_keys()
        (by_older,) = await other.schedulers.apply([_proven_report(first, kept, "succeeded")], came_by=_QUEUE)
        again = await other.schedulers.rotate_report_key(forgets=True)
        (by_forgotten,) = await driver.schedulers.apply(
            [_proven_report(first, forgotten, "succeeded")], came_by=_QUEUE
        )
        (key,) = await driver.schedulers.report_keys()
        (by_newest,) = await driver.schedulers.apply([_proven_report(key, newest, "succeeded")], came_by=_QUEUE)

        assert [key.id for key in keys] == [rotated, first.id]
        assert key.id == again
        assert [each.outcome for each in (by_older, by_forgotten, by_newest)] == ["accepted", "invented", "accepted"]
        assert await driver.state(forgotten) is JobState.QUEUED

    @case
    async def test_a_key_rotation_is_audited_without_the_key(self) -> None:
        driver = self.driver()
        by = Actor(user="ann", address="host")

        await driver.schedulers.rotate_report_key(audit=by.entry("store.rotate_key", kind="store"))

        (entry,) = await _audit_entries(driver)
        keys = await driver.schedulers.report_keys()
        assert (entry.action, entry.user) == ("store.rotate_key", "ann")
        assert len(keys) == 2
        for key in keys:
            assert key.secret.hex() not in repr((entry, keys))
            assert repr(key.secret)[2:-1] not in repr((entry, keys))

    @case
    async def test_a_new_database_has_one_key(self) -> None:
        drivers = [self.driver() for _ in range(5)]

        found = await asyncio.gather(*(driver.schedulers.report_keys() for driver in drivers))

        assert {len(keys) for keys in found} == {1}
        assert len({(key.id, key.secret) for keys in found for key in keys}) == 1

    @case
    async def test_one_call_separates_proven_from_forged_reports(self) -> None:
        driver = self.driver()
        (key, *_) = await driver.schedulers.report_keys()
        waits, held = await driver.submit(queue="waits"), await driver.make(JobState.HELD)
        runs = await driver.dispatch_new(queue="runs")
        made_up = Report(id=held.id, token=_LARGEST, kind="succeeded", worker="evil")

        applied = await driver.schedulers.apply(
            [
                made_up,
                _proven_report(key, waits, "failed"),
                Report(id=runs.id, token=runs.token, kind="succeeded", worker="w1"),
                _proven_report(key, held, "cancelled"),
                made_up,
            ],
            came_by=_QUEUE,
        )

        assert [each.outcome for each in applied] == ["invented", "accepted", "accepted", "accepted", "invented"]
        assert [await driver.state(each) for each in (waits, held, runs)] == [
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.SUCCEEDED,
        ]


def _forged_tokens(token: int) -> Iterator[int]:
    """Yield forged tokens of earlier, the same and later dispatches."""
    yield from (token ^ 1, token ^ 0xFFFF_FFFF, later(token), 2**32 + 12_345, 2**33 + 1, _LARGEST, _LARGEST - 1)


def _wrong_proofs(key: ReportKey, job_id: str, token: int) -> Iterator[str]:
    """Yield wrong proofs for this token and queue, from an empty to a nearly correct one."""
    proof = key.prove(job_id, token, _QUEUE)
    yield from ("", "ö\ud800", key.id, key.id + "A" * 22, proof[:-1], proof + "A", proof.swapcase())
    yield new_report_key(bytes(35)).prove(job_id, token, _QUEUE)
    yield ReportKey(key.id, bytes(32)).prove(job_id, token, _QUEUE)
    yield key.prove(job_id, token, f"{_QUEUE}0")
    yield key.prove(job_id, token ^ 2, _QUEUE)
    yield key.prove(job_id[:-1], token, job_id[-1] + _QUEUE)


def _proven_report(key: ReportKey, job: JobRecord, kind: ReportKind, *, token: int | None = None) -> Report:
    """Return a proven report of a dispatch that the store has not recorded."""
    token = later(job.token) if token is None else token
    proof = key.prove(job.id, token, _QUEUE)
    return Report(id=job.id, token=token, proof=proof, kind=kind, worker="w8", delay=HOUR)


async def _audit_entries(driver: JobDriver, job: JobRecord | None = None) -> list[AuditEntry]:
    which = AuditFilter() if job is None else AuditFilter(subject=job.id)
    page = await driver.store.identity.audit.entries(EVERYTHING_OF_ALL, which, limit=50)
    return [record.entry() for record in page.entries]


def _without_event_fields(record: JobRecord) -> JobRecord:
    """Return the record without fields that a store may change when it writes an event."""
    return msgspec.structs.replace(record, version=0)
