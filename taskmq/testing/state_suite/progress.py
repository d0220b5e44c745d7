"""Tests of progress as last progress_record by a task."""

import asyncio

from taskmq.contracts.stores import ProgressRecord
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

__all__ = ["Progress", "progress_record"]


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
    async def test_the_last_report_of_a_job_is_found_by_everybody(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("größe ☂ job"), new("job")

        await state.progress.report(progress_record(job), ttl=LONG)
        last = progress_record(job, done=2.5, note="größe ☂")
        await state.progress.report(last, ttl=LONG)

        assert await other.progress.find(job) == last
        assert await other.progress.find(beside) is None

    @case
    async def test_a_report_says_only_what_the_task_knows(self) -> None:
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
            # Its worker's clock is late.
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
    async def test_a_run_that_was_left_behind_changes_nothing(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        last = progress_record(job, attempt=2, started=2_000)
        await state.progress.report(last, ttl=LONG)

        await other.progress.report(progress_record(job, attempt=2, started=1_000, done=9), ttl=LONG)
        await other.progress.report(progress_record(job, attempt=1, started=1_000, done=9), ttl=LONG)

        assert await other.progress.find(job) == last

    @case
    async def test_reports_are_forgotten_after_their_time_and_each_one_renews_it(self) -> None:
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
    async def test_reports_survive_the_closing_of_their_state(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        await state.progress.report(progress_record(job), ttl=LONG)

        await state.aclose()

        assert await other.progress.find(job) == progress_record(job)

    @case
    async def test_reports_may_be_cancelled_and_the_state_goes_on(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            job = new("job")
            await cancel_at(point, state.progress.report(progress_record(job), ttl=LONG), within=self.patience)
            await asyncio.gather(*(state.progress.report(progress_record(job, done=n), ttl=LONG) for n in range(5)))
            found = await state.progress.find(job)
            assert found is not None
            assert found.job_id == job
