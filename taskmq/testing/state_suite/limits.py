"""Tests of limits: rates, concurrent permits, and all-or-nothing demands."""

import asyncio
import random

from taskmq.contracts.stores import Demand, LimitEntry, LimitStore, LimitUsage, PlaceDemand, RateDemand
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 30
_STEPS = 200
_KEYS = 3
_MINUTE = 60.0
_LATE = 300


class LimitCases(StateCase):
    """Every guarantee of `LimitStore`."""

    @case
    async def test_a_burst_starts_immediately_and_later_runs_get_a_start_time(self) -> None:
        state, other = self.state(), self.state()
        rate = RateDemand(key=new("größe ☂ rate"), interval=_MINUTE, burst=3)

        entries = [await _enter((state, other)[number % 2].limits, f"job {number}", rate) for number in range(6)]

        assert [entry.granted for entry in entries] == [True] * 3 + [False] * 3
        waits = [entry.wait / _MINUTE for entry in entries]
        assert max(waits[:3]) < 1e-4
        for place, wait in enumerate(waits[3:], start=1):
            assert place - 0.9 < wait < place + 0.001
        assert {entry.key for entry in entries[3:]} == {rate.key}
        assert await state.limits.usage(rate.key) == LimitUsage(held=0, waiting=3)

    @case
    async def test_asking_again_too_early_returns_the_same_time(self) -> None:
        state = self.state()
        rate = RateDemand(key=new("rate"), interval=LONG)
        await _enter(state.limits, "first", rate)
        second = await _enter(state.limits, "second", rate)
        third = await _enter(state.limits, "third", rate)

        for _ in range(3):
            again = await _enter(state.limits, "second", rate)
            assert not again.granted
            # The returned wait is never more than a quarter of an hour.
            assert again.wait <= second.wait

        assert third.wait >= second.wait
        assert (await state.limits.usage(rate.key)).waiting == 2

    @case
    async def test_a_run_that_asks_at_its_time_starts_before_newcomers(self) -> None:
        state, other = self.state(), self.state()
        rate = RateDemand(key=new("rate"), interval=self.short * 5)
        await _enter(state.limits, "first", rate)
        entry = await _enter(state.limits, "second", rate)
        assert not entry.granted

        await self.advance(entry.wait)
        newcomer = await _enter(other.limits, "newcomer", rate)
        second = await _enter(state.limits, "second", rate)

        assert not newcomer.granted
        assert second.granted
        assert (await state.limits.usage(rate.key)).waiting == 1

    @case
    async def test_free_capacity_is_not_reserved_for_absent_runs(self) -> None:
        state = self.state()
        rate = RateDemand(key=new("rate"), interval=self.short)
        await _enter(state.limits, "first", rate)
        entry = await _enter(state.limits, "never comes", rate)

        await self.advance(entry.wait + 2.1)

        assert (await _enter(state.limits, "newcomer", rate)).granted

    @case
    async def test_a_run_willing_to_wait_gets_a_start_within_its_patience(self) -> None:
        state = self.state()
        rate = RateDemand(key=new("rate"), interval=LONG)

        first = await _enter(state.limits, "first", rate, patience=2 * LONG)
        second = await _enter(state.limits, "second", rate, patience=2 * LONG)
        third = await _enter(state.limits, "third", rate)

        assert first.granted
        assert second.granted
        assert LONG - 60 < second.wait <= LONG
        assert not third.granted

    @case
    async def test_starts_under_a_strict_rate_are_never_early(self) -> None:
        state = self.state()
        rate = RateDemand(key=new("strict"), interval=LONG, strict=True)

        entries = [await _enter(state.limits, f"job {number}", rate, patience=9 * LONG) for number in range(4)]

        assert all(entry.granted for entry in entries)
        for place, entry in enumerate(entries):
            assert place * LONG - 60 < entry.wait <= place * LONG

    @case
    async def test_a_strict_start_delayed_by_another_limit_counts_from_then(self) -> None:
        state = self.state()
        busy, strict = (RateDemand(key=new(name), interval=LONG, strict=True) for name in ("busy", "strict"))
        await _enter(state.limits, "first", busy)

        both = await state.limits.acquire("second", [strict, busy], hold="second", seconds=LONG, patience=9 * LONG)
        after = await _enter(state.limits, "third", strict, patience=9 * LONG)

        assert LONG - 60 < both.wait <= LONG
        assert 2 * LONG - 60 < after.wait <= 2 * LONG

    @case
    async def test_the_number_of_concurrent_permits_is_limited(self) -> None:
        state, other = self.state(), self.state()
        places = PlaceDemand(key=new("größe ☂ places"), places=2)

        first = await _enter(state.limits, "1", places, hold="hold ☂ 1")
        second = await _enter(other.limits, "2", places, hold="hold 2")
        third = await _enter(state.limits, "3", places, hold="hold 3")

        assert first.granted
        assert second.granted
        assert not third.granted
        assert third.wait > 0
        assert third.key == places.key
        assert set(third.holds) == {"hold ☂ 1", "hold 2"}
        assert await other.limits.usage(places.key) == LimitUsage(held=2, waiting=1)

    @case
    async def test_only_one_of_many_concurrent_runs_gets_the_only_permit(self) -> None:
        states = [self.state() for _ in range(5)]
        for _ in range(3):
            places = PlaceDemand(key=new("places"), places=1)

            entries = await asyncio.gather(
                *(_enter(states[number % 5].limits, f"{number}", places) for number in range(_MANY))
            )

            assert sum(entry.granted for entry in entries) == 1
            assert (await states[0].limits.usage(places.key)).held == 1

    @case
    async def test_a_released_permit_goes_to_the_run_that_asks_at_its_time(self) -> None:
        state, other = self.state(), self.state()
        places = PlaceDemand(key=new("places"), places=1)
        await _enter(state.limits, "first", places, hold="first")
        entry = await _enter(other.limits, "second", places, hold="second")

        await self.advance(entry.wait)
        await state.limits.release("first", [places.key], held=entry.wait)
        newcomer = await _enter(state.limits, "newcomer", places, hold="newcomer")
        second = await _enter(other.limits, "second", places, hold="second")

        assert not newcomer.granted
        assert second.granted
        assert newcomer.wait > 0

    @case
    async def test_a_permit_that_is_not_renewed_goes_to_another_run(self) -> None:
        state, other = self.state(), self.state()
        renewed, ended = PlaceDemand(key=new("places"), places=1), PlaceDemand(key=new("places"), places=1)
        await _enter(state.limits, "1", renewed, hold="a", seconds=self.short)
        await _enter(state.limits, "1", ended, hold="a", seconds=self.short)

        assert await state.limits.renew([("a", renewed)], seconds=LONG) == [True]
        await self.advance(self.short * 1.5)

        assert not (await _enter(other.limits, "2", renewed)).granted
        assert (await _enter(other.limits, "2", ended, hold="b")).granted
        assert await state.limits.renew([("a", renewed), ("a", ended)], seconds=LONG) == [True, False]
        await other.limits.release("b", [ended.key], held=1)
        assert await state.limits.renew([("a", ended)], seconds=LONG) == [True]
        assert await state.limits.renew([], seconds=LONG) == []

    @case
    async def test_a_full_limit_without_past_grants_returns_growing_waits(self) -> None:
        state = self.state()
        full = PlaceDemand(key=new("full"), places=1)
        # Only the holder is recorded, as when the state has forgotten the grants after an hour.
        assert await state.limits.renew([("a", full)], seconds=LONG) == [True]

        waits = [(await _enter(state.limits, f"job {number}", full)).wait for number in range(4)]

        assert waits[0] < 10 < waits[1]
        assert waits == sorted(waits)

    @case
    async def test_asking_again_gives_a_time_after_earlier_runs(self) -> None:
        state, other = self.state(), self.state()
        full = PlaceDemand(key=new("full"), places=1)
        for job in ("holder", "first", "second", "never comes"):
            await _enter(state.limits, job, full)

        # All three are late now; the last in line must not let the second overtake the first.
        await self.advance(2.5)
        first = await _enter(state.limits, "first", full)
        second = await _enter(other.limits, "second", full)

        assert not first.granted
        assert not second.granted
        assert second.wait > first.wait + 1

    @case
    async def test_late_jobs_in_line_do_not_change_the_order_of_earlier_ones(self) -> None:
        state = self.state()
        key = new("rate")
        await _enter(state.limits, "starts", RateDemand(key=key, interval=self.short * 5))
        line = ["first", "second", *(f"never comes {number}" for number in range(_LATE))]
        entries = [await _enter(state.limits, job, RateDemand(key=key, interval=0.001)) for job in line]
        assert not any(entry.granted for entry in entries)

        await self.advance(entries[-1].wait + 2.5)
        assert (await _enter(state.limits, "passes", RateDemand(key=key, interval=5 * _MINUTE))).granted
        first, second = [await _enter(state.limits, job, RateDemand(key=key, interval=20)) for job in line[:2]]

        assert second.wait > first.wait + 10

    @case
    async def test_a_run_gets_all_its_permits_or_none(self) -> None:
        state = self.state()
        full, free = PlaceDemand(key=new("full"), places=1), PlaceDemand(key=new("free"), places=1)
        rate = RateDemand(key=new("rate"), interval=LONG)
        await _enter(state.limits, "holder", full, hold="holder")

        refused = await _enter(state.limits, "job", free, rate, full, hold="job")

        assert not refused.granted
        assert refused.key == full.key
        assert await state.limits.usage(free.key) == LimitUsage(held=0, waiting=0)
        assert (await _enter(state.limits, "other", rate)).granted
        await state.limits.release("holder", [full.key], held=1)
        await self.advance(refused.wait)
        rest = await _enter(state.limits, "job", free, full, hold="job")
        assert rest.granted
        assert (await state.limits.usage(free.key)).held == 1
        await state.limits.release("job", [free.key, full.key, rate.key], held=1)
        assert await state.limits.usage(full.key) == LimitUsage(held=0, waiting=0)

    @case
    async def test_a_lost_answer_does_not_use_a_second_permit(self) -> None:
        state = self.state()
        places = PlaceDemand(key=new("places"), places=2)

        for _ in range(3):
            assert (await _enter(state.limits, "job", places, hold="hold")).granted

        assert (await state.limits.usage(places.key)).held == 1
        assert (await _enter(state.limits, "job", places, hold="another run")).granted
        assert (await state.limits.usage(places.key)).held == 2

    @case
    async def test_an_abandoned_job_gives_up_its_turn(self) -> None:
        state = self.state()
        rate = RateDemand(key=new("rate"), interval=LONG)
        await _enter(state.limits, "first", rate)
        second = await _enter(state.limits, "second", rate)

        await state.limits.withdraw("second", [rate.key, new("another")])
        third = await _enter(state.limits, "third", rate)

        assert third.wait <= second.wait
        assert (await state.limits.usage(rate.key)).waiting == 1

    @case
    async def test_permits_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        places = PlaceDemand(key=new("places"), places=1)
        await _enter(state.limits, "job", places)

        await state.aclose()

        assert not (await _enter(other.limits, "other", places)).granted

    @case
    async def test_the_state_keeps_working_after_cancelled_limit_calls(self) -> None:
        state = self.state()
        for point in CancelPoint.ALL:
            places = PlaceDemand(key=new("places"), places=1)
            entering = _enter(state.limits, "job", places, hold="hold")
            await cancel_at(point, entering, within=self.patience)
            assert (await _enter(state.limits, "job", places, hold="hold")).granted
            leaving = state.limits.release("hold", [places.key], held=1)
            await cancel_at(point, leaving, within=self.patience)
            await state.limits.release("hold", [places.key], held=1)
            assert (await state.limits.usage(places.key)).held == 0

    @case
    async def test_random_runs_hold_the_permits_of_the_model(self) -> None:
        stores = [self.state().limits for _ in range(3)]
        dice = random.Random(7)
        demands = [PlaceDemand(key=new("places"), places=places) for places in range(1, _KEYS + 1)]
        held: dict[str, list[PlaceDemand]] = {}

        for step in range(_STEPS):
            store, where = dice.choice(stores), f"step {step}"
            wanted = dice.sample(demands, dice.randint(1, _KEYS))
            match dice.randrange(4):
                case 0 | 1:
                    hold = f"hold {step}"
                    entry = await _enter(store, f"job {step}", *wanted, hold=hold)
                    has_room = all(_count_taken(held, demand) < demand.places for demand in wanted)
                    # Permits may be reserved for earlier waiters for a moment.
                    assert has_room or not entry.granted, where
                    if entry.granted:
                        held[hold] = wanted
                    else:
                        await store.withdraw(f"job {step}", [demand.key for demand in wanted])
                        assert entry.wait > 0, where
                        assert not has_room, where
                case 2 if held:
                    hold = dice.choice(list(held))
                    await store.release(hold, [demand.key for demand in held.pop(hold)], held=0.1)
                case _ if held:
                    hold = dice.choice(list(held))
                    pairs = [(hold, demand) for demand in held[hold]]
                    assert await store.renew(pairs, seconds=LONG) == [True] * len(pairs), where
                case _:
                    pass
            for demand in demands:
                assert await store.usage(demand.key) == LimitUsage(held=_count_taken(held, demand), waiting=0), where


async def _enter(
    store: LimitStore,
    job_id: str,
    *demands: Demand,
    hold: str = "",
    seconds: float = LONG,
    patience: float = 0.0,
) -> LimitEntry:
    return await store.acquire(job_id, demands, hold=hold or f"of {job_id}", seconds=seconds, patience=patience)


def _count_taken(held: dict[str, list[PlaceDemand]], demand: PlaceDemand) -> int:
    return sum(demand in demands for demands in held.values())
