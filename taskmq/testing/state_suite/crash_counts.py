"""Tests of start counts: runs that have started and not ended."""

import asyncio

from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

__all__ = ["CrashCountCases"]

_MANY = 50


class CrashCountCases(StateCase):
    """Every guarantee of `StartStore`."""

    @case
    async def test_runs_that_begin_are_counted_by_job(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("größe ☂ job"), new("job")

        counts = [await each.starts.begin(job, ttl=LONG) for each in (state, other, state)]

        assert counts == [1, 2, 3]
        assert await other.starts.begin(beside, ttl=LONG) == 1

    @case
    async def test_runs_that_begin_at_the_same_time_are_each_counted(self) -> None:
        states = [self.state() for _ in range(5)]
        job = new("job")

        counts = await asyncio.gather(*(states[number % 5].starts.begin(job, ttl=LONG) for number in range(_MANY)))

        assert sorted(counts) == list(range(1, _MANY + 1))

    @case
    async def test_a_run_that_ends_forgets_all_runs_of_its_job_and_of_no_other(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("job"), new("job")
        for name in (job, job, beside):
            await state.starts.begin(name, ttl=LONG)

        await other.starts.end(job)

        assert await state.starts.begin(job, ttl=LONG) == 1
        assert await state.starts.begin(beside, ttl=LONG) == 2

    @case
    async def test_a_run_may_end_that_was_not_counted_and_twice(self) -> None:
        state = self.state()
        job = new("job")

        await state.starts.end(job)
        await state.starts.begin(job, ttl=LONG)
        await state.starts.end(job)
        await state.starts.end(job)

        assert await state.starts.begin(job, ttl=LONG) == 1

    @case
    async def test_runs_are_forgotten_after_their_time(self) -> None:
        state, other = self.state(), self.state()
        forgotten, kept = new("job"), new("job")
        await state.starts.begin(forgotten, ttl=self.short)
        await state.starts.begin(kept, ttl=LONG)

        await self.advance(self.short * 1.5)

        assert await other.starts.begin(forgotten, ttl=LONG) == 1
        assert await other.starts.begin(kept, ttl=LONG) == 2

    @case
    async def test_each_begin_renews_the_time(self) -> None:
        state = self.state()
        job = new("job")
        await state.starts.begin(job, ttl=self.short)
        await state.starts.begin(job, ttl=LONG)

        await self.advance(self.short * 1.5)

        assert await state.starts.begin(job, ttl=LONG) == 3

    @case
    async def test_counts_survive_the_closing_of_their_state(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        await state.starts.begin(job, ttl=LONG)

        await state.aclose()

        assert await other.starts.begin(job, ttl=LONG) == 2

    @case
    async def test_begins_and_ends_may_be_cancelled_and_the_state_goes_on(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            job = new("job")
            await cancel_at(point, state.starts.begin(job, ttl=LONG), within=self.patience)
            await cancel_at(point, state.starts.end(job), within=self.patience)
            await state.starts.end(job)
            assert await state.starts.begin(job, ttl=LONG) == 1
