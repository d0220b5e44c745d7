"""Tests of revocations of cancelled jobs."""

import asyncio

from taskmq.contracts.stores import Revocation
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_ALL = 1_000_000


class RevocationCases(StateCase):
    """Every guarantee of `RevocationStore`."""

    @case
    async def test_cancelled_jobs_are_read_in_order_from_a_cursor(self) -> None:
        state, other = self.state(), self.state()
        first, second, third = new("größe ☂ job"), new("job"), new("job")
        cursor = await self._last()

        await state.revocations.revoke(first, reason="zu spät ☂", ttl=LONG)
        await other.revocations.revoke(second, reason="", ttl=LONG)
        found = await other.revocations.since(cursor, limit=_ALL)
        await state.revocations.revoke(third, reason="c", ttl=LONG)

        assert [(one.job_id, one.reason) for one in found] == [(first, "zu spät ☂"), (second, "")]
        assert found[0].cursor < found[1].cursor
        rest = await state.revocations.since(found[-1].cursor, limit=_ALL)
        assert [one.job_id for one in rest] == [third]

    @case
    async def test_many_cancelled_jobs_are_read_in_pages(self) -> None:
        state = self.state()
        cursor = await self._last()
        jobs = [new(f"job {number}") for number in range(5)]
        for job in jobs:
            await state.revocations.revoke(job, reason="r", ttl=LONG)

        found: list[Revocation] = []
        while batch := await state.revocations.since(found[-1].cursor if found else cursor, limit=2):
            assert len(batch) <= 2
            found += batch

        assert [one.job_id for one in found] == jobs

    @case
    async def test_cancelling_again_changes_only_the_expiry(self) -> None:
        state = self.state()
        cursor = await self._last()
        job = new("job")
        await state.revocations.revoke(job, reason="first", ttl=self.short)
        (before,) = await state.revocations.since(cursor, limit=_ALL)

        await state.revocations.revoke(job, reason="second", ttl=LONG)
        await state.revocations.revoke(job, reason="third", ttl=self.short)
        await self.advance(self.short * 1.5)

        (after,) = await state.revocations.since(cursor, limit=_ALL)
        assert (after.reason, after.cursor) == ("first", before.cursor)
        assert after.until > before.until

    @case
    async def test_cancelled_jobs_expire(self) -> None:
        state = self.state()
        cursor = await self._last()
        forgotten, kept = new("job"), new("job")
        await state.revocations.revoke(forgotten, reason="r", ttl=self.short)
        await state.revocations.revoke(kept, reason="r", ttl=LONG)

        await self.advance(self.short * 1.5)

        assert [one.job_id for one in await state.revocations.since(cursor, limit=_ALL)] == [kept]
        await state.revocations.revoke(forgotten, reason="again", ttl=LONG)
        found = await state.revocations.since(cursor, limit=_ALL)
        assert [(one.job_id, one.reason) for one in found] == [(kept, "r"), (forgotten, "again")]

    @case
    async def test_a_job_cancelled_again_after_expiry_comes_last(self) -> None:
        state = self.state()
        job, others = new("job"), [new("another") for _ in range(120)]
        await asyncio.gather(*(state.revocations.revoke(each, reason="r", ttl=self.short) for each in others))
        await state.revocations.revoke(job, reason="first", ttl=self.short)
        await state.revocations.revoke(new("last"), reason="r", ttl=LONG)
        cursor = await self._last()
        await self.advance(self.short * 1.5)

        await state.revocations.revoke(job, reason="second", ttl=LONG)

        found = await state.revocations.since(cursor, limit=_ALL)
        assert [(one.job_id, one.reason) for one in found] == [(job, "second")]

    @case
    async def test_jobs_cancelled_concurrently_have_distinct_positions(self) -> None:
        states = [self.state() for _ in range(4)]
        cursor = await self._last()
        jobs = [new(f"job {number}") for number in range(40)]

        await asyncio.gather(
            *(states[number % 4].revocations.revoke(job, reason="r", ttl=LONG) for number, job in enumerate(jobs))
        )

        found = await states[0].revocations.since(cursor, limit=_ALL)
        assert sorted(one.job_id for one in found) == sorted(jobs)
        assert len({one.cursor for one in found}) == len(jobs)

    async def _last(self) -> int:
        """Return the cursor after the revocations of other tests."""
        found = await self.state().revocations.since(0, limit=_ALL)
        return found[-1].cursor if found else 0
