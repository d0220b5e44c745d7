"""Tests of start counts: runs that have started and not ended."""

import asyncio

from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 50


class CrashCountCases(StateCase):
    """Every guarantee of `StartStore`."""

    @case
    async def test_started_runs_are_counted_per_job(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("größe ☂ job"), new("job")

        counts = [await each.starts.begin(job, ttl=LONG) for each in (state, other, state)]

        assert counts == [1, 2, 3]
        assert await other.starts.begin(beside, ttl=LONG) == 1

    @case
    async def test_concurrently_started_runs_are_each_counted(self) -> None:
        states = [self.state() for _ in range(5)]
        job = new("job")

        counts = await asyncio.gather(*(states[number % 5].starts.begin(job, ttl=LONG) for number in range(_MANY)))

        assert sorted(counts) == list(range(1, _MANY + 1))

    @case
    async def test_the_end_of_a_run_clears_the_count_of_its_job_only(self) -> None:
        state, other = self.state(), self.state()
        job, beside = new("job"), new("job")
        for name in (job, job, beside):
            await state.starts.begin(name, ttl=LONG)

        await other.starts.end(job)

        assert await state.starts.begin(job, ttl=LONG) == 1
        assert await state.starts.begin(beside, ttl=LONG) == 2

    @case
    async def test_a_run_can_end_uncounted_and_twice(self) -> None:
        state = self.state()
        job = new("job")

        await state.starts.end(job)
        await state.starts.begin(job, ttl=LONG)
        await state.starts.end(job)
        await state.starts.end(job)

        assert await state.starts.begin(job, ttl=LONG) == 1

    @case
    async def test_run_counts_expire(self) -> None:
        state, other = self.state(), self.state()
        forgotten, kept = new("job"), new("job")
        await state.starts.begin(forgotten, ttl=self.short)
        await state.starts.begin(kept, ttl=LONG)

        await self.advance(self.short * 1.5)

        assert await other.starts.begin(forgotten, ttl=LONG) == 1
        assert await other.starts.begin(kept, ttl=LONG) == 2

    @case
    async def test_each_start_renews_the_expiry(self) -> None:
        state = self.state()
        job = new("job")
        await state.starts.begin(job, ttl=self.short)
        await state.starts.begin(job, ttl=LONG)

        await self.advance(self.short * 1.5)

        assert await state.starts.begin(job, ttl=LONG) == 3

    @case
    async def test_counts_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        await state.starts.begin(job, ttl=LONG)

        await state.aclose()

        assert await other.starts.begin(job, ttl=LONG) == 2

    @case
    async def test_the_state_keeps_working_after_cancelled_starts_and_ends(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            job = new("job")
            await cancel_at(point, state.starts.begin(job, ttl=LONG), within=self.patience)
            await cancel_at(point, state.starts.end(job), within=self.patience)
            await state.starts.end(job)
            assert await state.starts.begin(job, ttl=LONG) == 1
