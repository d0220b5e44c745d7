"""Leases: one holder at a time, and a number that tells the later from the earlier."""

import asyncio
import random
from collections.abc import Awaitable

from taskmq.contracts.stores import Lease
from taskmq.testing.runner import CancelPoint, cancelled_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new

__all__ = ["Leases"]

_MANY = 50
_STEPS = 200
_KEYS = 4


class Leases(StateCase):
    """Every guarantee of `LeaseStore`."""

    @case
    async def test_a_key_is_held_by_one_and_the_others_are_told_by_whom(self) -> None:
        state, other = self.state(), self.state()
        key = new("größe ☂ key")

        token = await state.leases.acquire(key, owner="a ☂", seconds=LONG, note="in work ☂")

        assert isinstance(token, int)
        for held in (
            await other.leases.acquire(key, owner="b", seconds=LONG),
            await state.leases.acquire(key, owner="a ☂", seconds=LONG),
            await other.leases.find(key),
        ):
            assert isinstance(held, Lease)
            assert (held.owner, held.token, held.note) == ("a ☂", token, "in work ☂")
            assert LONG - 60 < held.left <= LONG
        assert isinstance(await other.leases.acquire(new("another"), owner="b", seconds=LONG), int)

    @case
    async def test_one_of_many_takers_at_the_same_time_gets_it(self) -> None:
        states = [self.state() for _ in range(5)]

        for _ in range(3):
            key = new("key")
            answers = await asyncio.gather(
                *(states[number % 5].leases.acquire(key, owner=f"{number}", seconds=LONG) for number in range(_MANY))
            )
            (token,) = [answer for answer in answers if isinstance(answer, int)]
            assert {answer.token for answer in answers if isinstance(answer, Lease)} == {token}

    @case
    async def test_tokens_only_grow_over_release_and_end(self) -> None:
        state, other = self.state(), self.state()
        key, tokens = new("key"), list[int]()

        for store in (state.leases, other.leases, state.leases, other.leases):
            tokens.append(await _taken(store.acquire(key, owner="a", seconds=self.short)))
            await self.advance(self.short * 1.5)
        for store in (state.leases, other.leases, state.leases):
            tokens.append(await _taken(store.acquire(key, owner="a", seconds=LONG)))
            await store.release(key, token=tokens[-1])

        assert tokens == sorted(set(tokens))

    @case
    async def test_a_lease_that_is_not_renewed_ends(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await _taken(state.leases.acquire(key, owner="a", seconds=self.short))

        await self.advance(self.short * 1.5)

        assert await other.leases.find(key) is None
        assert not await state.leases.renew(key, token=token, seconds=LONG)
        assert await _taken(other.leases.acquire(key, owner="b", seconds=LONG)) > token

    @case
    async def test_a_renewed_lease_goes_on_and_may_end_earlier(self) -> None:
        state, other = self.state(), self.state()
        longer, shorter = new("key"), new("key")
        long = await _taken(state.leases.acquire(longer, owner="a", seconds=self.short))
        short = await _taken(state.leases.acquire(shorter, owner="a", seconds=LONG))

        assert await state.leases.renew(longer, token=long, seconds=LONG)
        assert await state.leases.renew(shorter, token=short, seconds=self.short)
        await self.advance(self.short * 1.5)

        held = await other.leases.find(longer)
        assert held is not None
        assert held.token == long
        assert await other.leases.find(shorter) is None

    @case
    async def test_the_note_is_changed_by_a_renewal_that_has_one(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await _taken(state.leases.acquire(key, owner="a", seconds=LONG, note="first"))

        notes = list[str]()
        for note in (None, "second", None, ""):
            assert await state.leases.renew(key, token=token, seconds=LONG, note=note)
            held = await other.leases.find(key)
            assert held is not None
            notes.append(held.note)

        assert notes == ["first", "second", "second", ""]

    @case
    async def test_only_the_token_renews_and_releases(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        old = await _taken(other.leases.acquire(key, owner="b", seconds=LONG))
        await other.leases.release(key, token=old)
        token = await _taken(state.leases.acquire(key, owner="a", seconds=LONG))

        assert not await other.leases.renew(key, token=old, seconds=self.short)
        await other.leases.release(key, token=old)
        await other.leases.release(new("never taken"), token=1)

        held = await other.leases.find(key)
        assert held is not None
        assert (held.owner, held.token) == ("a", token)
        assert held.left > LONG - 60

    @case
    async def test_a_released_key_is_free_at_once(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await _taken(state.leases.acquire(key, owner="a", seconds=LONG))

        await state.leases.release(key, token=token)
        await state.leases.release(key, token=token)

        assert await state.leases.find(key) is None
        assert not await state.leases.renew(key, token=token, seconds=LONG)
        assert await _taken(other.leases.acquire(key, owner="b", seconds=LONG)) > token

    @case
    async def test_leases_survive_the_closing_of_their_state(self) -> None:
        state, other = self.state(), self.state()
        key = new("key")
        token = await _taken(state.leases.acquire(key, owner="a", seconds=LONG))

        await state.aclose()

        held = await other.leases.find(key)
        assert held is not None
        assert held.token == token

    @case
    async def test_calls_may_be_cancelled_and_the_state_goes_on(self) -> None:
        state = self.state()

        for point in CancelPoint.ALL:
            key = new("key")
            await cancelled_at(point, state.leases.acquire(key, owner="a", seconds=LONG), within=self.patience)
            held = await state.leases.find(key)
            token = held.token if held else await _taken(state.leases.acquire(key, owner="a", seconds=LONG))
            await cancelled_at(point, state.leases.renew(key, token=token, seconds=LONG), within=self.patience)
            await cancelled_at(point, state.leases.find(key), within=self.patience)
            await cancelled_at(point, state.leases.release(key, token=token), within=self.patience)
            await state.leases.release(key, token=token)
            assert await state.leases.find(key) is None

    @case
    async def test_random_operations_do_what_the_model_does(self) -> None:
        stores = [self.state().leases for _ in range(3)]
        dice = random.Random(4)
        held: dict[str, tuple[int, str]] = {}
        last: dict[str, int] = {}
        keys = [new("key") for _ in range(_KEYS)]

        for step in range(_STEPS):
            store, key = dice.choice(stores), dice.choice(keys)
            token, note = held.get(key, (last.get(key, 0), ""))
            # Now and then one that never was, or is no more.
            said = token - dice.choice((0, 0, 1))
            where = f"step {step}"
            match dice.randrange(4):
                case 0:
                    answer = await store.acquire(key, owner="o", seconds=LONG, note=f"{step}")
                    if key in held:
                        assert isinstance(answer, Lease), where
                        assert (answer.token, answer.note) == (token, note), where
                    else:
                        assert isinstance(answer, int), where
                        assert answer > last.get(key, 0), where
                        held[key], last[key] = (answer, f"{step}"), answer
                case 1:
                    changed = dice.choice((None, f"{step}"))
                    is_held = key in held and said == token
                    assert await store.renew(key, token=said, seconds=LONG, note=changed) is is_held, where
                    if is_held and changed is not None:
                        held[key] = (token, changed)
                case 2 if dice.random() < 0.5:
                    await store.release(key, token=said)
                    if said == token:
                        held.pop(key, None)
                case _:
                    seen = await store.find(key)
                    assert (seen and (seen.token, seen.note)) == held.get(key), where


async def _taken(answer: Awaitable[int | Lease]) -> int:
    token = await answer
    assert isinstance(token, int)
    return token
