"""Job stores that break one promise each: the suite has to notice."""

import inspect
import itertools
from collections.abc import Sequence
from typing import Any, Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from taskmq.contracts.jobs import (
    AppliedReport,
    AttemptRecord,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    HistoryEntry,
    JobPage,
    JobRecord,
    JobStore,
    JobUpdate,
    Lane,
    NewJob,
    Pick,
    PutDefinition,
    Submitted,
    Withdrawn,
    partition_key,
)
from taskmq.model.jobs.definitions import Definition, DefinitionContent
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.registrations import RegisteredTask
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.testing import FakeClock
from taskmq.testing.job_store_suite import JobStoreSuite, driver
from taskmq_sql.catalogue import SqlDefinitions, SqlTasks
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.sqlite.jobs import dispatches, updates
from taskmq_sql.sqlite.jobs.codes import id_bytes
from taskmq_sql.sqlite.store import SqliteDispatch
from tests.unit.store_kit import Database, StagedStore


class _ForgetsKeys(StagedStore):
    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        return await super().submit([replace(job, key=None) for job in jobs], connection=connection)


class _ForgetsFingerprints(StagedStore):
    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        return await super().submit([replace(job, fingerprint=b"") for job in jobs], connection=connection)


class _KeepsThePast(StagedStore):
    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        answers = await super().submit(jobs, connection=connection)
        for job in jobs:
            _change(self, "due = ?", job.id, job.due)
        return answers


class _ListsTheOldestFirst(StagedStore):
    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        page = await super().list_jobs(which, after=after, limit=limit)
        return JobPage(page.jobs[::-1], page.after)


class _SkipsOneBetweenPages(StagedStore):
    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        page = await super().list_jobs(which, after=after, limit=limit + 1)
        more = len(page.jobs) > limit
        return JobPage(page.jobs[:limit], page.jobs[limit].id if more else None)


class _IgnoresLabels(StagedStore):
    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        return await super().list_jobs(replace(which, labels=()), after=after, limit=limit)

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        return await super().count_jobs(replace(which, labels=()), cap=cap)


class _ComparesNoVersion(StagedStore):
    async def update(self, update: JobUpdate) -> JobRecord | None:
        job = await self.get(update.id)
        return await super().update(update if job is None else replace(update, version=job.version))


class _ComparesNoState(StagedStore):
    async def update(self, update: JobUpdate) -> JobRecord | None:
        job = await self.get(update.id)
        return await super().update(update if job is None else replace(update, before=job.state))


class _ReturnsTheJobAsItWas(StagedStore):
    async def update(self, update: JobUpdate) -> JobRecord | None:
        before = await self.get(update.id)
        return None if await super().update(update) is None else before


class _ShowsNoEvents(StagedStore):
    async def events(self, job_id: str) -> list[HistoryEntry]:
        return []


class _DispatchesTheLatestFirst(SqliteDispatch):
    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        with pytest.MonkeyPatch.context() as patch:
            latest_first = dispatches._FIRST.replace("ORDER BY r.due, r.id", "ORDER BY r.due DESC, r.id DESC")
            patch.setattr(dispatches, "_FIRST", latest_first)
            return await super().dispatch(partition, epoch, picks)


class _HasNoFence(SqliteDispatch):
    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        return await super().dispatch(partition, await _present(self, partition, epoch), picks)

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        return await super().fire(partition, await _present(self, partition, epoch), jobs)

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        return await super().take_over(partition, await _present(self, partition, epoch))


class _RunsExpiredJobs(StagedStore):
    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        return await super().submit([replace(job, expires=None) for job in jobs], connection=connection)


class _KeepsItsTokens(SqliteDispatch):
    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        batch = await super().dispatch(partition, epoch, picks)
        if batch is None:
            return None
        for job in batch.jobs:
            _change(_store_of(self), "token = 1", job.id)
        return DispatchBatch(batch.id, batch.confirmed, [replace(job, token=1) for job in batch.jobs])


class _ComparesNoToken(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        known = [await _store_of(self).get(report.id) for report in reports]
        return await super().apply(
            [replace(report, token=job.token) if job else report for report, job in zip(reports, known, strict=True)],
            came_by=came_by,
        )


class _BelievesEveryToken(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        (key, *_) = await self.report_keys()
        return await super().apply(
            [replace(report, proof=key.prove(report.id, report.token, came_by)) for report in reports],
            came_by=came_by,
        )


class _BelievesNoProof(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return await super().apply([replace(report, proof="") for report in reports], came_by=came_by)


class _CountsTheLastOfACall(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return (await super().apply(reports[::-1], came_by=came_by))[::-1]


class _RepeatsWithoutAMark(StagedStore):
    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        found = await super().get(job_id, connection=connection)
        return None if found is None else replace(found, retried_as="")


class _ForgetsCancellations(StagedStore):
    async def update(self, update: JobUpdate) -> JobRecord | None:
        return await super().update(replace(update, cancel_requested=UNSET))


class _CountsSnoozes(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        applied = await super().apply(reports, came_by=came_by)
        for report, each in zip(reports, applied, strict=True):
            if report.kind == "snoozed" and each.outcome == "accepted":
                _change(_store_of(self), "attempt = attempt + 1", report.id)
        return applied


class _ForgetsAttempts(StagedStore):
    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        return []


class _FiresWhatWasChanged(SqliteDispatch):
    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        known = [await _store_of(self).get(job.id) for job in jobs]
        return await super().fire(
            partition,
            epoch,
            [replace(one, due=job.due) if job else one for one, job in zip(jobs, known, strict=True)],
        )


class _LooksAheadTooFar(SqliteDispatch):
    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        return await super().due(partition, until=until + 1, limit=limit)


class _TakesBackWhatIsGone(SqliteDispatch):
    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        known = [await _store_of(self).get(job.id) for job in jobs]
        present = [replace(one, token=job.token) if job else one for one, job in zip(jobs, known, strict=True)]
        return await super().undispatch(partition, epoch, present, delay=delay, reason=reason)


class _TakesBackWhatRuns(SqliteDispatch):
    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        for one in jobs:
            job = await _store_of(self).get(one.id)
            if job is not None and job.state is JobState.RUNNING and job.token == one.token:
                _change(_store_of(self), "state = ?", one.id, CODES[JobState.DISPATCHED])
        return await super().undispatch(partition, epoch, jobs, delay=delay, reason=reason)


class _EndsWhatRuns(SqliteDispatch):
    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        return await super().fail(partition, epoch, jobs, reason=reason, also_running=True)


class _TakesBackForAnyHolder(SqliteDispatch):
    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        present = await _present(self, partition, epoch)
        return await super().undispatch(partition, present, jobs, delay=delay, reason=reason)


class _TakesNothingOver(SqliteDispatch):
    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        return []


class _ForgetsConfirms(SqliteDispatch):
    async def confirm(self, batches: Sequence[int]) -> None:
        """Do nothing."""


class _ReadsEndedJobsWithoutResult(SqliteDispatch):
    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return await super().apply([replace(report, result=b"") for report in reports], came_by=came_by)


class _StepsAsItLikes(StagedStore):
    async def update(self, update: JobUpdate) -> JobRecord | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(updates, "can_follow", lambda before, after: after is not JobState.UNKNOWN)
            return await super().update(update)


# mypy takes the result of these async functions for a Coroutine, not for a CoroutineType.
class _MakesVersionsOfTheSame(SqlDefinitions):
    async def put(  # type: ignore[override]
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        await super().put(tenant, name, replace(content, owner="x"), version=version, by=by)
        return await super().put(tenant, name, content, version=None, by=by)


class _ComparesNoDefinition(SqlDefinitions):
    async def put(  # type: ignore[override]
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        return await super().put(tenant, name, content, version=None, by=by)


class _FindsDeletedDefinitions(SqlDefinitions):
    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:  # type: ignore[override]
        return await self.get(tenant, name, version=version) is not None


class _MixesTenants(SqlDefinitions):
    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        for each in ("acme", "umbrella", ""):
            if (found := await super().get(each, name, version=version)) is not None:
                return found
        return None


class _KeepsOneFormOfATask(SqlTasks):
    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:  # type: ignore[override]
        return list({one.registration.task: one for one in await super().registrations(tasks)}.values())


async def _present(dispatching: SqliteDispatch, partition: int, epoch: int) -> int:
    """Return the epoch of the partition's holder."""
    lease = await dispatching.leases.find(partition_key(partition))
    return epoch if lease is None else lease.token


def _store_of(part: object) -> StagedStore:
    found = vars(part)["store"]
    assert isinstance(found, StagedStore)
    return found


def _change(store: StagedStore, what: str, job_id: str, *values: Any) -> None:
    store.database.ask(f"UPDATE job SET {what} WHERE id = ?", *values, id_bytes(job_id))


_Broken = type[StagedStore | SqliteDispatch | SqlDefinitions | SqlTasks]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_ForgetsKeys, "a_key_identifies_one_job_of_its_tenant"),
        (_ForgetsKeys, "a_key_is_found_in_its_tenant_even_after_its_job_ended"),
        (_ForgetsKeys, "one_key_twice_in_one_call_creates_one_job"),
        (_ForgetsFingerprints, "a_key_identifies_one_job_of_its_tenant"),
        (_KeepsThePast, "a_job_with_a_past_time_is_queued_and_due_now"),
        (_ListsTheOldestFirst, "jobs_are_listed_newest_first_without_bodies_and_results"),
        (_SkipsOneBetweenPages, "a_page_continues_where_the_last_one_ended"),
        (_IgnoresLabels, "a_filter_by_labels_requires_all_of_them"),
        (_ComparesNoVersion, "an_update_for_another_version_or_state_changes_nothing"),
        (_ComparesNoVersion, "only_one_of_many_changes_to_one_version_applies"),
        (_ComparesNoState, "an_update_for_another_version_or_state_changes_nothing"),
        (_ReturnsTheJobAsItWas, "an_update_changes_only_the_given_fields"),
        (_ShowsNoEvents, "the_event_records_the_action_its_author_and_reason"),
        (_ShowsNoEvents, "a_superseded_report_is_recorded_as_an_event"),
        (_RepeatsWithoutAMark, "a_retried_job_names_its_repetition"),
        (_DispatchesTheLatestFirst, "a_lane_dispatches_by_due_time_and_then_by_submission"),
        (_HasNoFence, "an_old_epoch_dispatches_nothing"),
        (_HasNoFence, "an_old_epoch_fires_nothing"),
        (_HasNoFence, "a_scheduler_without_the_partition_takes_over_nothing"),
        (_RunsExpiredJobs, "an_expired_job_ends_instead_of_being_dispatched"),
        (_KeepsItsTokens, "each_dispatch_has_a_new_token_that_fits_a_double"),
        (_ComparesNoToken, "a_report_with_another_token_is_superseded"),
        (_CountsTheLastOfACall, "several_reports_on_one_job_in_one_call_apply_in_order"),
        (_ForgetsCancellations, "a_job_asked_to_cancel_ends_instead_of_running_again"),
        (_ForgetsCancellations, "withdrawing_a_job_asked_to_cancel_ends_it"),
        (_CountsSnoozes, "a_snoozed_or_refused_job_waits_without_counting_the_attempt"),
        (_ForgetsAttempts, "attempts_that_did_not_end_the_job_are_recorded"),
        (_FiresWhatWasChanged, "a_job_changed_or_cancelled_since_it_was_read_is_not_fired"),
        (_LooksAheadTooFar, "a_timer_due_at_the_end_of_the_look_ahead_is_not_found"),
        (_TakesBackWhatIsGone, "jobs_with_an_outdated_token_are_neither_withdrawn_nor_failed"),
        (_TakesBackWhatRuns, "a_running_job_is_neither_withdrawn_nor_failed"),
        (_EndsWhatRuns, "a_running_job_is_neither_withdrawn_nor_failed"),
        (_TakesBackForAnyHolder, "a_former_holder_withdraws_and_fails_nothing"),
        (_TakesNothingOver, "the_next_holder_gets_the_batches_of_earlier_ones"),
        (_ForgetsConfirms, "the_next_holder_gets_the_batches_of_earlier_ones"),
        (_ReadsEndedJobsWithoutResult, "a_success_stores_its_result_and_the_times_of_the_worker"),
        (_MakesVersionsOfTheSame, "unchanged_content_creates_no_version"),
        (_ComparesNoDefinition, "a_put_for_another_version_changes_nothing"),
        (_ComparesNoDefinition, "only_one_writer_based_on_a_version_creates_the_next"),
        (_FindsDeletedDefinitions, "random_histories_of_definitions_match_the_model"),
        (_FindsDeletedDefinitions, "a_deleted_definition_is_not_found_and_keeps_its_versions"),
        (_MixesTenants, "a_definition_belongs_to_its_tenant"),
        (_KeepsOneFormOfATask, "each_form_of_a_task_is_kept_with_its_reporter"),
        (_StepsAsItLikes, "exactly_the_transitions_of_the_table_are_allowed"),
    ],
)
def test_a_broken_promise_is_noticed(broken: _Broken, promise: str) -> None:
    suite = _suite(broken)

    with pytest.raises(AssertionError):
        getattr(suite, f"test_{promise}")()


# The first of a hundred histories that notices it: a known one is not searched again.
_NOTICED_BY: Final[dict[_Broken, int]] = {
    _FiresWhatWasChanged: 128,
    _TakesBackWhatIsGone: 22,
    _EndsWhatRuns: 4,
    _ForgetsConfirms: 7,
    _ForgetsCancellations: 7,
}


@pytest.mark.nightly("tests/conformance/test_the_job_store_suite_itself.py::test_a_broken_promise_is_noticed")
@pytest.mark.parametrize(
    "broken",
    [
        _ForgetsKeys,
        _ForgetsFingerprints,
        _ComparesNoVersion,
        _ReturnsTheJobAsItWas,
        _ShowsNoEvents,
        _HasNoFence,
        _KeepsItsTokens,
        _ComparesNoToken,
        _BelievesEveryToken,
        _BelievesNoProof,
        _ForgetsCancellations,
        _CountsSnoozes,
        _ForgetsAttempts,
        _FiresWhatWasChanged,
        _TakesBackWhatIsGone,
        _TakesBackWhatRuns,
        _EndsWhatRuns,
        _TakesBackForAnyHolder,
        _TakesNothingOver,
        _ForgetsConfirms,
        _ReadsEndedJobsWithoutResult,
        _StepsAsItLikes,
    ],
)
def test_random_histories_notice_a_broken_promise(broken: _Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _NOTICED_BY.get(broken, 0)

    def run() -> None:
        for number in range(100):
            # The ids of a history do not depend on earlier ones: the same ones notice it.
            monkeypatch.setattr(driver, "_order", itertools.count())
            suite = _suite(broken)
            suite.seed = (first + number) % 200
            suite.test_random_histories_match_the_model()

    with pytest.raises(AssertionError):
        run()


def _suite(broken: _Broken) -> JobStoreSuite:
    class Suite(JobStoreSuite):
        def __init__(self) -> None:
            self.clock = FakeClock()
            self.database = Database(self.clock)

        def open_store(self) -> JobStore:
            if issubclass(broken, StagedStore):
                return broken(self.database, clock=self.clock)
            store = StagedStore(self.database, clock=self.clock)
            for part in (store.dispatching, store.definitions, store.tasks):
                if issubclass(broken, type(part)):
                    part.__class__ = broken
                    vars(part)["store"] = store
            return store

    return Suite()


def test_every_test_of_the_suite_is_a_plain_method_that_needs_no_plugin() -> None:
    tests = [name for name in dir(JobStoreSuite) if name.startswith("test_")]

    assert len(tests) > 120
    assert not [name for name in tests if inspect.iscoroutinefunction(getattr(JobStoreSuite, name))]
