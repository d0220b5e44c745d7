"""Tests of claims: a key has one holder at a time, completes once, and rejects late holders."""

import asyncio
import random
from dataclasses import dataclass, field

from taskmq.client.large_values import LargeClaims, LargeValues
from taskmq.contracts.stores import Claimed, ClaimStore, Done, Granted, Held
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import ResultDamaged, ResultExpired
from taskmq.testing.runner import CancelPoint, cancel_at, case, raises
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 50
_STEPS = 300
_KEYS = 3


class Claims(StateCase):
    """Every guarantee of `ClaimStore`."""

    @case
    async def test_a_key_has_one_holder_and_others_learn_who_it_is(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key = new("größe ☂ {key} claim")

        token = await _grant(claims, key, job_id="job ☂", owner="a ☂")

        for store in (claims, others):
            held = await _claim(store, key, job_id="job 2", owner="b")
            assert isinstance(held, Held)
            assert (held.owner, held.job_id, held.token) == ("a ☂", "job ☂", token)
            assert LONG - 60 < held.left <= LONG
            found = await store.find(key)
            assert isinstance(found, Held)
            assert (found.owner, found.job_id, found.token) == ("a ☂", "job ☂", token)
        assert await others.find(new("another")) is None
        assert isinstance(await _claim(others, new("another")), Granted)

    @case
    async def test_only_one_of_many_concurrent_claims_is_granted(self) -> None:
        states = [self.state() for _ in range(5)]

        for _ in range(3):
            key = new("claim")
            answers = await asyncio.gather(*(_claim(states[number % 5].claims, key) for number in range(_MANY)))
            (granted,) = [answer for answer in answers if isinstance(answer, Granted)]
            assert {answer.token for answer in answers if isinstance(answer, Held)} == {granted.token}

    @case
    async def test_a_large_value_is_stored_separately_as_long_as_its_claim(self) -> None:
        claims, blobs, key, value = self.state().claims, _Blobs(), new("claim"), bytes(range(256)) * 100
        checked = LargeClaims(claims, LargeValues(blobs, SystemClock(), inline=1024))
        token = await _grant(checked, key, job_id="first")

        assert await _complete(checked, key, token, job_id="first", value=value)

        (kept,) = blobs.kept.values()
        assert (kept, blobs.ttls[0] >= LONG) == (value, True)
        done = await claims.find(key)
        assert isinstance(done, Done)
        assert len(done.value) < 256
        assert await checked.find(key) == Done(job_id="first", content_type="application/json", value=value)
        assert await _claim(checked, key, job_id="second") == await checked.find(key)
        assert await checked.renew({key: token}, lease=LONG) == {key}
        (name,) = blobs.kept
        blobs.kept[name] = value[1:]
        with raises(ResultDamaged):
            await checked.find(key)
        del blobs.kept[name]
        with raises(ResultExpired):
            await _claim(checked, key, job_id="third")
        # A small value stays inline.
        small = new("small")
        token = await _grant(checked, small)
        assert await _complete(checked, small, token, value=b"1")
        assert await claims.find(small) == await checked.find(small)
        assert blobs.kept == {}
        other = new("other")
        assert await checked.release(other, token=await _grant(checked, other))

    @case
    async def test_a_completed_key_answers_every_later_claim(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key, value = new("claim"), bytes(range(256))
        token = await _grant(claims, key, job_id="first")

        assert await _complete(claims, key, token, job_id="first", value=value)

        for store in (claims, others):
            done = await _claim(store, key, job_id="second")
            assert done == Done(job_id="first", content_type="application/json", value=value)
            assert await store.find(key) == done
        assert await others.renew({key: token}, lease=LONG) == {key}

    @case
    async def test_completing_a_key_twice_changes_nothing(self) -> None:
        claims = self.state().claims
        key = new("claim")
        token = await _grant(claims, key)

        assert await _complete(claims, key, token, value=b"1")
        assert await _complete(claims, key, token, value=b"2")
        assert await claims.release(key, token=token)

        done = await _claim(claims, key)
        assert isinstance(done, Done)
        assert done.value == b"1"

    @case
    async def test_a_completed_key_expires(self) -> None:
        claims = self.state().claims
        key = new("claim")
        token = await _grant(claims, key)
        assert await _complete(claims, key, token, ttl=self.short)

        await self.advance(self.short * 1.5)

        assert await _grant(claims, key) > token

    @case
    async def test_the_holder_of_an_expired_lease_is_too_late(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key = new("claim")
        late = await _grant(claims, key, lease=self.short)
        await self.advance(self.short * 1.5)
        assert await others.find(key) is None

        token = await _grant(others, key)

        assert token > late
        assert await claims.renew({key: late}, lease=LONG) == {key}
        assert not await _complete(claims, key, late)
        assert not await claims.release(key, token=late)
        held = await _claim(others, key)
        assert isinstance(held, Held)
        assert held.token == token

    @case
    async def test_a_late_holder_still_counts_if_nobody_claimed_since(self) -> None:
        claims = self.state().claims
        renewed, completed = new("claim"), new("claim")
        first = await _grant(claims, renewed, lease=self.short)
        second = await _grant(claims, completed, lease=self.short)
        await self.advance(self.short * 1.5)

        assert await claims.renew({renewed: first}, lease=LONG) == frozenset()
        assert await _complete(claims, completed, second)

        assert isinstance(await _claim(claims, renewed), Held)
        assert isinstance(await _claim(claims, completed), Done)

    @case
    async def test_a_late_holder_is_rejected_even_if_the_key_is_free_again(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key = new("claim")
        late = await _grant(claims, key, lease=self.short)
        await self.advance(self.short * 1.5)
        await others.release(key, token=await _grant(others, key))

        assert not await _complete(claims, key, late)
        assert await claims.renew({key: late}, lease=LONG) == {key}

        assert isinstance(await _claim(others, key), Granted)

    @case
    async def test_a_released_key_is_free_immediately_and_its_token_invalid(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key = new("claim")
        token = await _grant(claims, key)

        assert await claims.release(key, token=token)
        assert await claims.release(key, token=token)

        assert await others.find(key) is None
        assert await claims.renew({key: token}, lease=LONG) == {key}
        assert not await _complete(claims, key, token)
        assert await _grant(others, key) > token

    @case
    async def test_a_key_can_be_taken_over_from_a_lost_holder(self) -> None:
        claims, others = self.state().claims, self.state().claims
        key = new("claim")
        gone = await _grant(claims, key, owner="gone")

        token = await _grant(others, key, owner="next", over=gone)

        assert token > gone
        again = await _claim(others, key, over=gone)
        assert isinstance(again, Held)
        assert (again.owner, again.token) == ("next", token)
        assert not await _complete(claims, key, gone)
        assert await _complete(others, key, token)
        assert isinstance(await _claim(claims, key, over=token), Done)

    @case
    async def test_only_one_of_many_takes_over_a_key(self) -> None:
        states = [self.state() for _ in range(5)]
        key = new("claim")
        gone = await _grant(states[0].claims, key)

        answers = await asyncio.gather(*(_claim(states[n % 5].claims, key, over=gone) for n in range(_MANY)))

        assert sum(isinstance(answer, Granted) for answer in answers) == 1

    @case
    async def test_many_keys_are_renewed_in_one_call(self) -> None:
        claims = self.state().claims
        keys = [new("claim") for _ in range(_MANY)]
        tokens = {key: await _grant(claims, key, lease=self.short * 3) for key in keys}
        await claims.release(keys[0], token=tokens[keys[0]])

        assert await claims.renew(tokens, lease=LONG) == {keys[0]}
        await self.advance(self.short * 4)

        assert all([isinstance(await _claim(claims, key), Held) for key in keys[1:]])
        assert await claims.renew({}, lease=LONG) == frozenset()

    @case
    async def test_a_forgotten_key_can_be_claimed_again_and_counts(self) -> None:
        claims = self.state().claims
        renewed, completed = new("claim"), new("claim")

        assert await claims.renew({renewed: 7}, lease=LONG) == frozenset()
        assert await _complete(claims, completed, 7)

        held = await _claim(claims, renewed)
        assert isinstance(held, Held)
        assert held.token == 7
        assert await _grant(claims, renewed, over=7) > 7
        assert isinstance(await _claim(claims, completed), Done)

    @case
    async def test_claims_survive_their_state_closing(self) -> None:
        state, other = self.state(), self.state()
        key = new("claim")
        token = await _grant(state.claims, key)

        await state.aclose()

        held = await _claim(other.claims, key)
        assert isinstance(held, Held)
        assert held.token == token

    @case
    async def test_the_state_keeps_working_after_cancelled_claims(self) -> None:
        state = self.state()
        claims = state.claims

        for point in CancelPoint.ALL:
            key = new("claim")
            await cancel_at(point, _claim(claims, key), within=self.patience)
            answer = await _claim(claims, key)
            token = answer.token if isinstance(answer, Granted | Held) else 0
            await cancel_at(point, claims.renew({key: token}, lease=LONG), within=self.patience)
            await cancel_at(point, _complete(claims, key, token), within=self.patience)
            assert await _complete(claims, key, token)
            assert isinstance(await _claim(claims, key), Done)

    @case
    async def test_random_claims_match_the_model(self) -> None:
        stores = [self.state().claims for _ in range(3)]

        for seed in range(3):
            run = _Run(random.Random(seed), stores, [new("claim") for _ in range(_KEYS)])
            for step in range(_STEPS):
                await run.step(f"seed {seed}, step {step}")


@dataclass
class _Key:
    stage: str = "free"
    job_id: str = ""
    value: bytes = b""
    tokens: list[int] = field(default_factory=list[int])


class _Run:
    def __init__(self, dice: random.Random, stores: list[ClaimStore], keys: list[str]) -> None:
        self._dice = dice
        self._stores = stores
        self._keys = {key: _Key() for key in keys}

    async def step(self, where: str) -> None:
        key = self._dice.choice(list(self._keys))
        operation = self._dice.choices((self._claim, self._renew, self._complete, self._release), (6, 3, 1, 3))[0]
        await operation(self._dice.choice(self._stores), key, self._keys[key], f"{where}: {operation.__name__}")

    async def _claim(self, store: ClaimStore, key: str, model: _Key, where: str) -> None:
        job, over = f"job {self._dice.randrange(9)}", self._dice.choice((None, self._token(model)))
        answer = await _claim(store, key, job_id=job, over=over)
        if model.stage == "done":
            assert answer == Done(job_id=model.job_id, content_type="application/json", value=model.value), where
        elif model.stage == "held" and over != model.tokens[-1]:
            assert isinstance(answer, Held), where
            assert (answer.job_id, answer.token) == (model.job_id, model.tokens[-1]), where
        else:
            assert isinstance(answer, Granted), where
            assert not model.tokens or answer.token > model.tokens[-1], where
            model.stage, model.job_id = "held", job
            model.tokens.append(answer.token)

    async def _renew(self, store: ClaimStore, key: str, model: _Key, where: str) -> None:
        if not model.tokens:
            return
        token = self._token(model)
        is_held = model.stage == "held" and token == model.tokens[-1]
        assert await store.renew({key: token}, lease=LONG) == (frozenset() if is_held else {key}), where

    async def _complete(self, store: ClaimStore, key: str, model: _Key, where: str) -> None:
        if not model.tokens:
            return
        token, value = self._token(model), self._dice.randbytes(3)
        counts = model.stage != "free" and token == model.tokens[-1]
        assert await _complete(store, key, token, job_id=model.job_id, value=value) is counts, where
        if counts and model.stage == "held":
            model.stage, model.value = "done", value

    async def _release(self, store: ClaimStore, key: str, model: _Key, where: str) -> None:
        token = self._token(model)
        counts = not model.tokens or token == model.tokens[-1]
        assert await store.release(key, token=token) is counts, where
        if model.stage == "held" and token == model.tokens[-1]:
            model.stage = "free"

    def _token(self, model: _Key) -> int:
        # The latest token is more likely than earlier ones.
        return self._dice.choice([*model.tokens, *model.tokens[-1:] * 3]) if model.tokens else 1


async def _claim(
    claims: ClaimStore,
    key: str,
    *,
    job_id: str = "job",
    owner: str = "owner",
    lease: float = LONG,
    over: int | None = None,
) -> Claimed:
    return await claims.claim(key, job_id=job_id, owner=owner, lease=lease, ttl=LONG, over=over)


class _Blobs:
    """An in-memory `BlobStore`."""

    address = "here"

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.ttls: list[float] = []

    async def put(self, label: str, data: bytes, *, ttl: float) -> str:
        self.ttls.append(ttl)
        self.kept[label] = data
        return label

    async def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def aclose(self) -> None: ...


async def _grant(
    claims: ClaimStore,
    key: str,
    *,
    job_id: str = "job",
    owner: str = "owner",
    lease: float = LONG,
    over: int | None = None,
) -> int:
    answer = await _claim(claims, key, job_id=job_id, owner=owner, lease=lease, over=over)
    assert isinstance(answer, Granted)
    return answer.token


async def _complete(
    claims: ClaimStore, key: str, token: int, *, job_id: str = "job", value: bytes = b"1", ttl: float = LONG
) -> bool:
    return await claims.complete(
        key, token=token, job_id=job_id, content_type="application/json", value=value, ttl=ttl
    )
