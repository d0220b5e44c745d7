"""Job stores that break one promise each: the suite has to notice."""

import inspect
import itertools
from collections.abc import Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from taskmq.contracts.jobs import (
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DueJob,
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
from taskmq.testing import FakeClock, JobModel, MemoryJobStore
from taskmq.testing.job_store.catalogue import CatalogueModel
from taskmq.testing.job_store_suite import JobStoreSuite, driver


class _ForgetsKeys(JobModel):
    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        return super().submit([replace(job, key=None) for job in jobs])


class _ForgetsFingerprints(JobModel):
    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        return super().submit([replace(job, fingerprint=b"") for job in jobs])


class _KeepsThePast(JobModel):
    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        answers = super().submit(jobs)
        for job in jobs:
            if job.id in self.jobs:
                self.jobs[job.id] = replace(self.jobs[job.id], due=job.due)
        return answers


class _ListsTheOldestFirst(JobModel):
    def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        page = super().list_jobs(which, after=after, limit=limit)
        return JobPage(page.jobs[::-1], page.after)


class _SkipsOneBetweenPages(JobModel):
    def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        page = super().list_jobs(which, after=after, limit=limit + 1)
        more = len(page.jobs) > limit
        return JobPage(page.jobs[:limit], page.jobs[limit].id if more else None)


class _IgnoresLabels(JobModel):
    def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        return super().list_jobs(replace(which, labels=()), after=after, limit=limit)

    def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        return super().count_jobs(replace(which, labels=()), cap=cap)


class _ComparesNoVersion(JobModel):
    def update(self, update: JobUpdate) -> JobRecord | None:
        job = self.jobs.get(update.id)
        return super().update(update if job is None else replace(update, version=job.version))


class _ComparesNoState(JobModel):
    def update(self, update: JobUpdate) -> JobRecord | None:
        job = self.jobs.get(update.id)
        return super().update(update if job is None else replace(update, before=job.state))


class _ReturnsTheJobAsItWas(JobModel):
    def update(self, update: JobUpdate) -> JobRecord | None:
        before = self.jobs.get(update.id)
        return None if super().update(update) is None else before


class _WritesNoEvents(JobModel):
    def note(self, job: JobRecord, kind: Any, *, by: str = "", note: str = "", started: int | None = None) -> None:
        """Do nothing."""


class _DispatchesTheLatestFirst(JobModel):
    def ready(self, lane: Lane) -> list[JobRecord]:
        return super().ready(lane)[::-1]


class _HasNoFence(JobModel):
    def _holds(self, partition: int, epoch: int) -> bool:
        return True


class _RunsExpiredJobs(JobModel):
    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        return super().submit([replace(job, expires=None) for job in jobs])


class _KeepsItsTokens(JobModel):
    def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        batch = super().dispatch(partition, epoch, picks)
        if batch is None:
            return None
        for job in batch.jobs:
            self.set_token(batch.id, job.id, 1)
        return DispatchBatch(batch.id, batch.confirmed, [replace(job, token=1) for job in batch.jobs])


class _ComparesNoToken(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        known = [self.jobs.get(report.id) for report in reports]
        return super().apply(
            [replace(report, token=job.token) if job else report for report, job in zip(reports, known, strict=True)],
            came_by=came_by,
        )


class _BelievesEveryToken(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        (key, *_) = self.report_keys
        return super().apply(
            [replace(report, proof=key.prove(report.id, report.token, came_by)) for report in reports],
            came_by=came_by,
        )


class _BelievesNoProof(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return super().apply([replace(report, proof="") for report in reports], came_by=came_by)


class _CountsTheLastOfACall(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return super().apply(reports[::-1], came_by=came_by)[::-1]


class _RepeatsWithoutAMark(JobModel):
    def note(self, job: JobRecord, kind: Any, *, by: str = "", note: str = "", started: int | None = None) -> None:
        self.jobs[job.id] = replace(job, retried_as="")
        super().note(job, kind, by=by, note=note, started=started)


class _ForgetsCancellations(JobModel):
    def update(self, update: JobUpdate) -> JobRecord | None:
        changed = super().update(update)
        if changed is not None:
            changed = self.jobs[update.id] = replace(changed, cancel_requested=None)
        return changed


class _CountsSnoozes(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        applied = super().apply(reports, came_by=came_by)
        for report, each in zip(reports, applied, strict=True):
            if report.kind == "snoozed" and each.outcome == "accepted":
                self.jobs[report.id] = replace(self.jobs[report.id], attempt=self.jobs[report.id].attempt + 1)
        return applied


class _ForgetsAttempts(JobModel):
    def attempts(self, job_id: str) -> list[Any]:
        return []


class _FiresWhatWasChanged(JobModel):
    def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        known = [self.jobs.get(job.id) for job in jobs]
        return super().fire(
            partition,
            epoch,
            [replace(one, due=job.due) if job else one for one, job in zip(jobs, known, strict=True)],
        )


class _LooksAheadTooFar(JobModel):
    def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        return super().due(partition, until=until + 1, limit=limit)


class _TakesBackWhatIsGone(JobModel):
    def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        known = [self.jobs.get(job.id) for job in jobs]
        return super().undispatch(
            partition,
            epoch,
            [replace(one, token=job.token) if job else one for one, job in zip(jobs, known, strict=True)],
            delay=delay,
            reason=reason,
        )


class _TakesBackWhatRuns(JobModel):
    def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        for one in jobs:
            if (job := self.under_way(one.id, one.token)) is not None:
                self.jobs[one.id] = replace(job, state=JobState.DISPATCHED)
        return super().undispatch(partition, epoch, jobs, delay=delay, reason=reason)


class _EndsWhatRuns(JobModel):
    def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        return super().fail(partition, epoch, jobs, reason=reason, also_running=True)


class _TakesBackForAnyHolder(JobModel):
    def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        lease = self.leases.find(partition_key(partition), now=self.now)
        present = epoch if lease is None else lease.token
        return super().undispatch(partition, present, jobs, delay=delay, reason=reason)


class _TakesNothingOver(JobModel):
    def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        return []


class _ForgetsConfirms(JobModel):
    def confirm(self, batches: Sequence[int]) -> None:
        """Do nothing."""


class _ReadsEndedJobsWithoutResult(JobModel):
    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return super().apply([replace(report, result=b"") for report in reports], came_by=came_by)


class _StepsAsItLikes(JobModel):
    def update(self, update: JobUpdate) -> JobRecord | None:
        job = self.jobs.get(update.id)
        if job is None or (job.state, job.version) != (update.before, update.version) or job.finished is not None:
            return None
        if update.after is JobState.UNKNOWN:
            return super().update(update)
        changed = self.jobs[job.id] = replace(job, state=update.after, version=job.version + 1)
        return changed


class _BrokenCatalogue(JobModel):
    """Definitions or tasks that break a promise."""

    catalogue_kind: type[CatalogueModel]

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = self.catalogue_kind()


class _MakesVersionsOfTheSame(_BrokenCatalogue):
    class catalogue_kind(CatalogueModel):  # noqa: N801 - stands in the place of an attribute
        def put(
            self, tenant: str, name: str, content: DefinitionContent, *, version: int | None, by: str, now: int
        ) -> PutDefinition | None:
            super().put(tenant, name, replace(content, owner="x"), version=version, by=by, now=now)
            return super().put(tenant, name, content, version=None, by=by, now=now)


class _ComparesNoDefinition(_BrokenCatalogue):
    class catalogue_kind(CatalogueModel):  # noqa: N801 - stands in the place of an attribute
        def put(
            self, tenant: str, name: str, content: DefinitionContent, *, version: int | None, by: str, now: int
        ) -> PutDefinition | None:
            return super().put(tenant, name, content, version=None, by=by, now=now)


class _FindsDeletedDefinitions(_BrokenCatalogue):
    class catalogue_kind(CatalogueModel):  # noqa: N801 - stands in the place of an attribute
        def delete(self, tenant: str, name: str, *, version: int | None) -> bool:
            return self.get(tenant, name, version=version) is not None


class _MixesTenants(_BrokenCatalogue):
    class catalogue_kind(CatalogueModel):  # noqa: N801 - stands in the place of an attribute
        def get(self, tenant: str, name: str, *, version: int | None) -> Definition | None:
            found = (super(type(self), self).get(each, name, version=version) for each in ("acme", "umbrella", ""))
            return next((one for one in found if one is not None), None)


class _KeepsOneFormOfATask(_BrokenCatalogue):
    class catalogue_kind(CatalogueModel):  # noqa: N801 - stands in the place of an attribute
        def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
            return list({one.registration.task: one for one in super().registrations(tasks)}.values())


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_ForgetsKeys, "a_key_names_one_job_of_its_tenant"),
        (_ForgetsKeys, "a_key_is_found_in_its_tenant_also_when_its_job_has_ended"),
        (_ForgetsKeys, "one_key_twice_in_one_call_makes_one_job"),
        (_ForgetsFingerprints, "a_key_names_one_job_of_its_tenant"),
        (_KeepsThePast, "a_job_whose_time_has_come_is_queued_and_due_now"),
        (_ListsTheOldestFirst, "jobs_are_listed_the_newest_first_without_bodies_and_results"),
        (_SkipsOneBetweenPages, "pages_go_on_where_the_last_one_ended"),
        (_IgnoresLabels, "a_filter_by_labels_wants_all_of_them"),
        (_ComparesNoVersion, "a_version_or_state_that_is_not_the_jobs_changes_nothing"),
        (_ComparesNoVersion, "one_of_many_changes_of_one_version_takes_place"),
        (_ComparesNoState, "a_version_or_state_that_is_not_the_jobs_changes_nothing"),
        (_ReturnsTheJobAsItWas, "what_is_given_changes_and_the_rest_stays"),
        (_WritesNoEvents, "the_event_says_what_was_done_by_whom_and_why"),
        (_WritesNoEvents, "a_superseded_report_is_kept_as_an_event"),
        (_RepeatsWithoutAMark, "a_job_that_was_retried_names_the_one_that_repeats_it"),
        (_DispatchesTheLatestFirst, "in_a_lane_the_earliest_due_goes_first_and_of_those_the_earliest_submitted"),
        (_HasNoFence, "an_epoch_that_has_passed_on_does_nothing_at_all"),
        (_HasNoFence, "an_epoch_that_has_passed_on_fires_nothing"),
        (_HasNoFence, "who_does_not_hold_the_partition_takes_nothing_over"),
        (_RunsExpiredJobs, "an_expired_job_ends_instead_of_being_dispatched"),
        (_KeepsItsTokens, "the_token_is_new_with_every_dispatch_and_fits_every_languages_numbers"),
        (_ComparesNoToken, "a_report_with_another_token_is_superseded"),
        (_CountsTheLastOfACall, "several_reports_of_one_job_in_one_call_count_in_their_order"),
        (_ForgetsCancellations, "what_would_run_again_ends_where_its_cancellation_was_asked_for"),
        (_ForgetsCancellations, "a_job_whose_cancellation_was_asked_for_ends_where_it_is_taken_back"),
        (_CountsSnoozes, "a_snoozed_or_refused_job_waits_without_counting_the_attempt"),
        (_ForgetsAttempts, "attempts_that_did_not_end_the_job_are_kept"),
        (_FiresWhatWasChanged, "one_that_was_changed_or_cancelled_since_it_was_read_stays_as_it_is"),
        (_LooksAheadTooFar, "what_is_due_at_the_end_of_the_look_ahead_is_not_found_yet"),
        (_TakesBackWhatIsGone, "jobs_that_have_lost_their_token_are_neither_taken_back_nor_failed"),
        (_TakesBackWhatRuns, "a_job_that_runs_is_neither_taken_back_nor_failed"),
        (_EndsWhatRuns, "a_job_that_runs_is_neither_taken_back_nor_failed"),
        (_TakesBackForAnyHolder, "a_holder_whose_partition_has_passed_on_takes_nothing_back_and_fails_nothing"),
        (_TakesNothingOver, "the_next_holder_gets_what_the_earlier_ones_have_left"),
        (_ForgetsConfirms, "the_next_holder_gets_what_the_earlier_ones_have_left"),
        (_ReadsEndedJobsWithoutResult, "a_success_keeps_its_result_and_the_workers_times"),
        (_MakesVersionsOfTheSame, "the_same_content_makes_no_version"),
        (_ComparesNoDefinition, "a_put_for_another_version_changes_nothing"),
        (_ComparesNoDefinition, "of_writers_that_have_seen_one_version_one_makes_the_next"),
        (_FindsDeletedDefinitions, "random_histories_of_definitions_do_what_the_model_does"),
        (_FindsDeletedDefinitions, "a_deleted_definition_is_not_found_and_keeps_its_versions"),
        (_MixesTenants, "a_definition_belongs_to_its_tenant"),
        (_KeepsOneFormOfATask, "each_form_of_a_task_is_kept_and_who_told_it"),
        (_StepsAsItLikes, "every_step_of_the_table_is_taken_and_no_other"),
    ],
)
def test_a_broken_promise_is_noticed(broken: type[JobModel], promise: str) -> None:
    suite = _suite(broken)

    with pytest.raises(AssertionError):
        getattr(suite, f"test_{promise}")()


# The history of a hundred that notices it first: where there is one, it is not looked for each time.
_NOTICED_BY: Final[dict[type[JobModel], int]] = {
    _FiresWhatWasChanged: 78,
    _TakesBackWhatIsGone: 22,
    _EndsWhatRuns: 4,
    _ForgetsConfirms: 7,
    _ForgetsCancellations: 7,
}


@pytest.mark.parametrize(
    "broken",
    [
        _ForgetsKeys,
        _ForgetsFingerprints,
        _ComparesNoVersion,
        _ReturnsTheJobAsItWas,
        _WritesNoEvents,
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
def test_random_histories_notice_a_broken_promise(broken: type[JobModel], monkeypatch: pytest.MonkeyPatch) -> None:
    first = _NOTICED_BY.get(broken, 0)

    def run() -> None:
        for number in range(100):
            # The ids of a history are the same whatever ran before: the same ones notice it.
            monkeypatch.setattr(driver, "_order", itertools.count())
            suite = _suite(broken)
            suite.seed = (first + number) % 100
            suite.test_random_histories_do_what_the_model_does()

    with pytest.raises(AssertionError):
        run()


def _suite(model: type[JobModel]) -> JobStoreSuite:
    class Suite(JobStoreSuite):
        def __init__(self) -> None:
            self.model, self.clock = model(), FakeClock()

        def open_store(self) -> JobStore:
            return MemoryJobStore(self.model, clock=self.clock)

    return Suite()


def test_every_test_of_the_suite_is_a_plain_method_that_needs_no_plugin() -> None:
    tests = [name for name in dir(JobStoreSuite) if name.startswith("test_")]

    assert len(tests) > 120
    assert not [name for name in tests if inspect.iscoroutinefunction(getattr(JobStoreSuite, name))]
