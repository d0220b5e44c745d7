"""Tests of the progress that a task last reported."""

import asyncio

from taskmq.contracts.stores import ProgressRecord
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new


def progress_record(
    job_id: str, *, done: float = 1, attempt: int = 1, started: int = 1_000, note: str = ""
) -> ProgressRecord:
    """Return the progress record of a run."""
    return ProgressRecord(
        job_id=job_id, attempt=attempt, done=done, total=10, note=note, started=started, updated=started + 5
    )


class Progress(StateCase):
    """Every guarantee of `ProgressStore`."""

    @case
    async def test_every_state_finds_the_last_report_of_a_job(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("größe ☂ job"), new("job")

        await state.progress.report(progress_record(job), ttl=LONG)
        last = progress_record(job, done=2.5, note="größe ☂")
        await state.progress.report(last, ttl=LONG)

        assert await other.progress.find(job) == last
        assert await other.progress.find(beside) is None

    @case
    async def test_a_report_contains_only_the_given_fields(self) -> None:
        state = self.state()
        job = new("job")
        record = ProgressRecord(job_id=job, attempt=3, done=0.25, started=1, updated=2)

        await state.progress.report(record, ttl=LONG)

        assert await state.progress.find(job) == record

    @case
    async def test_a_later_run_of_the_job_takes_over(self) -> None:
        state = self.state()

        for later in (
            progress_record("", started=2_000),
            # The clock of this worker is slow.
            progress_record("", attempt=2, started=500),
            # A replayed dead letter starts with the first attempt again.
            progress_record("", attempt=1, started=9_000),
        ):
            job = new("job")
            first = progress_record(job, attempt=2 if later.started == 9_000 else 1)
            await state.progress.report(first, ttl=LONG)
            record = ProgressRecord(
                job_id=job, attempt=later.attempt, done=0, started=later.started, updated=later.updated
            )
            await state.progress.report(record, ttl=LONG)
            assert await state.progress.find(job) == record

    @case
    async def test_an_outdated_run_changes_nothing(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        last = progress_record(job, attempt=2, started=2_000)
        await state.progress.report(last, ttl=LONG)

        await other.progress.report(progress_record(job, attempt=2, started=1_000, done=9), ttl=LONG)
        await other.progress.report(progress_record(job, attempt=1, started=1_000, done=9), ttl=LONG)

        assert await other.progress.find(job) == last

    @case
    async def test_reports_expire_and_each_report_renews_the_expiry(self) -> None:
        state, other = self.state(), self.state()
        forgotten, renewed = new("job"), new("job")
        await state.progress.report(progress_record(forgotten, started=2_000), ttl=self.short)
        await state.progress.report(progress_record(renewed), ttl=self.short)
        await state.progress.report(progress_record(renewed, done=3), ttl=LONG)

        await self.advance(self.short * 1.5)

        assert await other.progress.find(forgotten) is None
        assert await other.progress.find(renewed) == progress_record(renewed, done=3)
        await other.progress.report(progress_record(forgotten), ttl=LONG)
        assert await other.progress.find(forgotten) == progress_record(forgotten)

    @case
    async def test_reports_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        await state.progress.report(progress_record(job), ttl=LONG)

        await state.aclose()

        assert await other.progress.find(job) == progress_record(job)

    @case
    async def test_the_state_keeps_working_after_cancelled_reports(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            job = new("job")
            await cancel_at(point, state.progress.report(progress_record(job), ttl=LONG), within=self.patience)
            await asyncio.gather(*(state.progress.report(progress_record(job, done=n), ttl=LONG) for n in range(5)))
            found = await state.progress.find(job)
            assert found is not None
            assert found.job_id == job
