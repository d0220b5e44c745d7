"""Tests of checkpoints: values that runs of a job save for later runs."""

import asyncio

from taskmq.contracts.stores import BegunRun, CheckpointStore
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 50


async def _begin(store: CheckpointStore, job_id: str, *, attempt: int = 1, ttl: float = LONG) -> BegunRun:
    run = await store.begin(job_id, attempt=attempt, ttl=ttl)
    assert run is not None
    return run


class Checkpoints(StateCase):
    """Every guarantee of `CheckpointStore`."""

    @case
    async def test_the_next_run_of_the_same_job_finds_the_saved_values(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job, beside = new("größe ☂ job"), new("job")
        run = await _begin(state, job)
        assert run.values == {}

        assert await state.save(job, "größe ☂", b'"\xff\x00"', token=run.token, ttl=LONG)
        assert await state.save(job, "token", b"", token=run.token, ttl=LONG)
        assert await state.save(job, "token", b"2", token=run.token, ttl=LONG)

        assert (await _begin(other, job)).values == {"größe ☂": b'"\xff\x00"', "token": b"2"}
        assert (await _begin(other, beside)).values == {}

    @case
    async def test_saving_the_same_value_twice_changes_nothing(self) -> None:
        state = self.state().checkpoints
        job = new("job")
        run = await _begin(state, job)

        for _ in range(2):
            assert await state.save(job, "a", b"1", token=run.token, ttl=LONG)

        assert (await _begin(state, job)).values == {"a": b"1"}

    @case
    async def test_tokens_grow_with_every_started_run(self) -> None:
        states = [self.state().checkpoints for _ in range(5)]
        job = new("job")

        tokens = [(await _begin(states[number % 5], job)).token for number in range(10)]
        beginnings = (states[number % 5].begin(job, attempt=1, ttl=LONG) for number in range(_MANY))
        together = [run.token for run in await asyncio.gather(*beginnings) if run is not None]

        assert tokens == sorted(set(tokens))
        assert len(set(together)) == _MANY
        assert min(together) > tokens[-1]

    @case
    async def test_only_the_latest_run_can_save(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job = new("job")
        first = await _begin(state, job)
        assert await state.save(job, "a", b"1", token=first.token, ttl=LONG)
        second = await _begin(other, job)
        assert await other.save(job, "b", b"2", token=second.token, ttl=LONG)

        assert not await state.save(job, "a", b"late", token=first.token, ttl=LONG)
        await state.forget(job, token=first.token)

        assert (await _begin(state, job)).values == {"a": b"1", "b": b"2"}

    @case
    async def test_a_run_of_an_earlier_attempt_cannot_start_or_affect_the_later(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job = new("job")
        later = await _begin(state, job, attempt=3)

        assert await other.begin(job, attempt=2, ttl=LONG) is None

        assert await state.save(job, "a", b"1", token=later.token, ttl=LONG)
        assert (await _begin(other, job, attempt=3)).values == {"a": b"1"}

    @case
    async def test_a_forgotten_job_starts_again_with_a_larger_token(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job = new("job")
        run = await _begin(state, job, attempt=5)
        await state.save(job, "a", b"1", token=run.token, ttl=LONG)

        await state.forget(job, token=run.token)
        await state.forget(job, token=run.token)

        again = await _begin(other, job, attempt=1)
        assert again.values == {}
        assert again.token > run.token

    @case
    async def test_a_first_attempt_always_starts_and_finds_saved_values(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job = new("job")
        run = await _begin(state, job, attempt=5)
        await state.save(job, "a", b"1", token=run.token, ttl=LONG)

        # A replayed dead letter starts like this.
        again = await _begin(other, job, attempt=1)

        assert again.values == {"a": b"1"}
        assert again.token > run.token
        assert not await state.save(job, "a", b"2", token=run.token, ttl=LONG)
        assert await other.begin(job, attempt=2, ttl=LONG) is not None

    @case
    async def test_a_forgotten_or_unstarted_job_cannot_save(self) -> None:
        state = self.state().checkpoints
        job = new("job")
        run = await _begin(state, job)
        await state.forget(job, token=run.token)

        for token in range(run.token - 1, run.token + 1):
            assert not await state.save(job, "a", b"1", token=token, ttl=LONG)
        assert not await state.save(new("job"), "a", b"1", token=0, ttl=LONG)
        assert (await _begin(state, job)).values == {}

    @case
    async def test_saved_values_expire(self) -> None:
        state, other = self.state().checkpoints, self.state().checkpoints
        job = new("job")
        run = await _begin(state, job, attempt=2, ttl=self.short)
        await state.save(job, "a", b"1", token=run.token, ttl=self.short)

        await self.advance(self.short * 1.5)

        assert not await state.save(job, "b", b"2", token=run.token, ttl=LONG)
        again = await _begin(other, job, attempt=1)
        assert again.values == {}
        assert again.token > run.token

    @case
    async def test_an_expired_job_starts_anew_despite_many_other_expired_jobs(self) -> None:
        state = self.state().checkpoints
        jobs = [new("job") for _ in range(_MANY * 5)]
        await asyncio.gather(*(state.begin(job, attempt=2, ttl=self.short) for job in jobs))
        last = new("job")
        run = await _begin(state, last, attempt=2, ttl=self.short)
        await state.save(last, "a", b"1", token=run.token, ttl=self.short)

        await self.advance(self.short * 3)

        assert (await _begin(state, last, attempt=1)).values == {}

    @case
    async def test_every_start_and_save_renews_the_expiry_of_all_values(self) -> None:
        state = self.state().checkpoints
        saved, begun = new("job"), new("job")
        for job in (saved, begun):
            run = await _begin(state, job, ttl=self.short)
            await state.save(job, "a", b"1", token=run.token, ttl=self.short)
            if job is saved:
                await state.save(job, "b", b"2", token=run.token, ttl=LONG)
            else:
                await _begin(state, job, ttl=LONG)

        await self.advance(self.short * 1.5)

        assert (await _begin(state, saved)).values == {"a": b"1", "b": b"2"}
        assert (await _begin(state, begun)).values == {"a": b"1"}

    @case
    async def test_saved_values_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        job = new("job")
        run = await _begin(state.checkpoints, job)
        await state.checkpoints.save(job, "a", b"1", token=run.token, ttl=LONG)

        await state.aclose()

        again = await _begin(other.checkpoints, job)
        assert (again.values, again.token > run.token) == ({"a": b"1"}, True)

    @case
    async def test_the_state_keeps_working_after_cancelled_checkpoint_calls(self) -> None:
        state = self.state().checkpoints

        for point in CancelPoint.ALL:
            job = new("job")
            await cancel_at(point, state.begin(job, attempt=1, ttl=LONG), within=self.patience)
            run = await _begin(state, job)
            await cancel_at(point, state.save(job, "a", b"1", token=run.token, ttl=LONG), within=self.patience)
            assert await state.save(job, "a", b"2", token=run.token, ttl=LONG)
            assert (await _begin(state, job)).values == {"a": b"2"}
            await cancel_at(point, state.forget(job, token=run.token), within=self.patience)
