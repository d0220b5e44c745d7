"""Occurrences: claimed once, completed for good."""

import asyncio

from taskmq.stores import OccurrenceStore
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new

__all__ = ["Occurrences", "claims"]

_CLAIMERS = 50


class Occurrences(StateCase):
    """Every guarantee of `OccurrenceStore`."""

    @case
    async def test_an_occurrence_is_claimed_once(self) -> None:
        state, other = self.state(), self.state()
        occurrence = new("nightly@2026-11-21T03:00 ☂")

        assert await claims(state.occurrences, occurrence)
        assert not await claims(state.occurrences, occurrence)
        assert not await claims(other.occurrences, occurrence)
        assert await claims(other.occurrences, new("another"))

    @case
    async def test_one_of_many_claimers_at_the_same_time_gets_it(self) -> None:
        states = [self.state() for _ in range(5)]

        for _ in range(3):
            occurrence = new("occurrence")
            answers = await asyncio.gather(
                *(
                    states[number % 5].occurrences.claim(occurrence, owner=f"beat {number}", lease=LONG, ttl=LONG)
                    for number in range(_CLAIMERS)
                )
            )
            assert sorted(answers) == [False] * (_CLAIMERS - 1) + [True]

    @case
    async def test_a_claim_whose_owner_went_silent_goes_to_one_other(self) -> None:
        states = [self.state() for _ in range(5)]
        occurrence = new("occurrence")
        assert await claims(states[0].occurrences, occurrence, lease=self.short)
        assert not await claims(states[1].occurrences, occurrence, lease=self.short)

        await self.advance(self.short * 1.5)

        answers = await asyncio.gather(
            *(claims(states[number % 5].occurrences, occurrence) for number in range(_CLAIMERS))
        )
        assert sorted(answers) == [False] * (_CLAIMERS - 1) + [True]

    @case
    async def test_a_completed_occurrence_is_claimed_by_nobody(self) -> None:
        state, other = self.state(), self.state()
        occurrence = new("occurrence")
        await claims(state.occurrences, occurrence, lease=self.short)

        await state.occurrences.complete(occurrence, ttl=LONG)
        await self.advance(self.short * 1.5)

        assert not await claims(state.occurrences, occurrence)
        assert not await claims(other.occurrences, occurrence)

    @case
    async def test_an_occurrence_completed_by_a_late_owner_is_claimed_by_nobody(self) -> None:
        state, other = self.state(), self.state()
        occurrence = new("occurrence")
        await claims(state.occurrences, occurrence, lease=self.short)
        await self.advance(self.short * 1.5)

        await state.occurrences.complete(occurrence, ttl=LONG)

        assert not await claims(other.occurrences, occurrence)

    @case
    async def test_an_occurrence_may_be_completed_without_a_claim_and_twice(self) -> None:
        state, other = self.state(), self.state()
        occurrence = new("occurrence")

        await state.occurrences.complete(occurrence, ttl=LONG)
        await other.occurrences.complete(occurrence, ttl=LONG)

        assert not await claims(state.occurrences, occurrence)

    @case
    async def test_claims_and_completions_are_forgotten_after_their_time(self) -> None:
        state = self.state()
        claimed, completed = new("claimed"), new("completed")
        assert await state.occurrences.claim(claimed, owner="beat", lease=LONG, ttl=self.short)
        assert await claims(state.occurrences, completed)
        await state.occurrences.complete(completed, ttl=self.short)

        await self.advance(self.short * 1.5)

        assert await claims(state.occurrences, claimed)
        assert await claims(state.occurrences, completed)


async def claims(store: OccurrenceStore, occurrence: str, *, lease: float = LONG) -> bool:
    """Whether somebody who was not there before gets the occurrence."""
    return await store.claim(occurrence, owner=new("beat"), lease=lease, ttl=LONG)
