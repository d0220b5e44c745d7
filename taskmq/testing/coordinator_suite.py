"""The conformance suite for coordinators: an adapter of `Coordinator` is complete when its subclass passes.

    class TestMine(CoordinatorSuite):
        short = 1.0

        def open_coordinator(self):
            return my_package.open_coordinator(my_url)

One test calls `open_coordinator` several times, as several processes at one server would. The suites of states and
job stores include these cases. For detailed failures call
`pytest.register_assert_rewrite("taskmq.testing.coordinator_suite")` in conftest.py.
"""

import asyncio
import random
import uuid
from collections.abc import Awaitable

from taskmq.contracts.stores import Coordinator, Lease, member_key
from taskmq.testing.runner import CancelPoint, Suite, cancel_at, case

LONG = 3_600.0

_MANY = 50
_STEPS = 200
_KEYS = 4


class CoordinatorCases(Suite):
    """Every guarantee of `Coordinator`.

    Attributes:
        short: seconds after which a lease expires in a test; a server with coarse time needs more.
    """

    short: float = 0.4

    def coordinator(self) -> Coordinator:
        """Return another process's coordinator, closed at the end of the test."""
        raise NotImplementedError

    async def advance(self, seconds: float) -> None:
        """Let time pass for the server."""
        await asyncio.sleep(seconds)

    @case
    async def test_a_key_has_one_holder_and_others_learn_who_it_is(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("größe ☂ key")

        token = await mine.acquire(key, owner="a ☂", seconds=LONG, note="in work ☂")

        assert isinstance(token, int)
        for held in (
            await other.acquire(key, owner="b", seconds=LONG),
            await mine.acquire(key, owner="a ☂", seconds=LONG),
            await other.find(key),
        ):
            assert isinstance(held, Lease)
            assert (held.owner, held.token, held.note) == ("a ☂", token, "in work ☂")
            assert LONG - 60 < held.left <= LONG
        assert isinstance(await other.acquire(new("another"), owner="b", seconds=LONG), int)

    @case
    async def test_only_one_of_many_concurrent_claims_gets_the_lease(self) -> None:
        coordinators = [self.coordinator() for _ in range(5)]

        for _ in range(3):
            key = new("key")
            answers = await asyncio.gather(
                *(coordinators[number % 5].acquire(key, owner=f"{number}", seconds=LONG) for number in range(_MANY))
            )
            (token,) = [answer for answer in answers if isinstance(answer, int)]
            assert {answer.token for answer in answers if isinstance(answer, Lease)} == {token}

    @case
    async def test_tokens_only_grow_across_release_and_expiry(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key, tokens = new("key"), list[int]()

        for store in (mine, other, mine, other):
            tokens.append(await _acquire(store.acquire(key, owner="a", seconds=self.short)))
            await self.advance(self.short * 1.5)
        for store in (mine, other, mine):
            tokens.append(await _acquire(store.acquire(key, owner="a", seconds=LONG)))
            await store.release(key, token=tokens[-1])

        assert tokens == sorted(set(tokens))

    @case
    async def test_a_lease_that_is_not_renewed_expires(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("key")
        token = await _acquire(mine.acquire(key, owner="a", seconds=self.short))

        await self.advance(self.short * 1.5)

        assert await other.find(key) is None
        assert not await mine.renew(key, token=token, seconds=LONG)
        assert await _acquire(other.acquire(key, owner="b", seconds=LONG)) > token

    @case
    async def test_a_renewal_can_lengthen_or_shorten_a_lease(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        longer, shorter = new("key"), new("key")
        long = await _acquire(mine.acquire(longer, owner="a", seconds=LONG))
        short = await _acquire(mine.acquire(shorter, owner="a", seconds=LONG))

        assert await mine.renew(longer, token=long, seconds=2 * LONG)
        assert await mine.renew(shorter, token=short, seconds=self.short)
        await self.advance(self.short * 1.5)

        held = await other.find(longer)
        assert held is not None
        assert held.token == long
        assert LONG < held.left <= 2 * LONG
        assert await other.find(shorter) is None

    @case
    async def test_a_renewal_with_a_note_replaces_the_note(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("key")
        token = await _acquire(mine.acquire(key, owner="a", seconds=LONG, note="first"))

        notes = list[str]()
        for note in (None, "second", None, ""):
            assert await mine.renew(key, token=token, seconds=LONG, note=note)
            held = await other.find(key)
            assert held is not None
            notes.append(held.note)

        assert notes == ["first", "second", "second", ""]

    @case
    async def test_only_the_right_token_renews_and_releases(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("key")
        old = await _acquire(other.acquire(key, owner="b", seconds=LONG))
        await other.release(key, token=old)
        token = await _acquire(mine.acquire(key, owner="a", seconds=LONG))

        assert not await other.renew(key, token=old, seconds=self.short)
        await other.release(key, token=old)
        await other.release(new("never taken"), token=1)

        held = await other.find(key)
        assert held is not None
        assert (held.owner, held.token) == ("a", token)
        assert held.left > LONG - 60

    @case
    async def test_a_released_key_is_free_immediately(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("key")
        token = await _acquire(mine.acquire(key, owner="a", seconds=LONG))

        await mine.release(key, token=token)
        await mine.release(key, token=token)

        assert await mine.find(key) is None
        assert not await mine.renew(key, token=token, seconds=LONG)
        assert await _acquire(other.acquire(key, owner="b", seconds=LONG)) > token

    @case
    async def test_the_state_keeps_working_after_cancelled_calls(self) -> None:
        mine = self.coordinator()

        for point in CancelPoint.ALL:
            key = new("key")
            await cancel_at(point, mine.acquire(key, owner="a", seconds=LONG), within=self.patience)
            # The server may still process a cancelled call, and so acquire the lease.
            answer = await mine.acquire(key, owner="a", seconds=LONG)
            token = answer.token if isinstance(answer, Lease) else answer
            await cancel_at(point, mine.renew(key, token=token, seconds=LONG), within=self.patience)
            await cancel_at(point, mine.find(key), within=self.patience)
            await cancel_at(point, mine.release(key, token=token), within=self.patience)
            await mine.release(key, token=token)
            assert await mine.find(key) is None

    @case
    async def test_random_operations_match_the_model(self) -> None:
        stores = [self.coordinator() for _ in range(3)]
        dice = random.Random(4)
        held: dict[str, tuple[int, str]] = {}
        last: dict[str, int] = {}
        keys = [new("key") for _ in range(_KEYS)]

        for step in range(_STEPS):
            store, key = dice.choice(stores), dice.choice(keys)
            token, note = held.get(key, (last.get(key, 0), ""))
            # Occasionally a token that never existed or is outdated.
            used_token = token - dice.choice((0, 0, 1))
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
                    is_held = key in held and used_token == token
                    assert await store.renew(key, token=used_token, seconds=LONG, note=changed) is is_held, where
                    if is_held and changed is not None:
                        held[key] = (token, changed)
                case 2 if dice.random() < 0.5:
                    await store.release(key, token=used_token)
                    if used_token == token:
                        held.pop(key, None)
                case _:
                    seen = await store.find(key)
                    assert (seen and (seen.token, seen.note)) == held.get(key), where

    @case
    async def test_a_late_holder_is_recognized_by_its_token(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        key = new("leader")
        stale = await _acquire(mine.acquire(key, owner="frozen", seconds=self.short))

        await self.advance(self.short * 1.5)
        present = await _acquire(other.acquire(key, owner="present", seconds=LONG))

        # The frozen member still believes that it leads: its calls have no effect.
        assert stale < present
        assert not await mine.renew(key, token=stale, seconds=LONG, note="still mine")
        await mine.release(key, token=stale)
        held = await mine.find(key)
        assert held is not None
        assert (held.owner, held.token, held.note) == ("present", present, "")

    @case
    async def test_the_members_of_a_group_are_its_lease_holders(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        group = new("group")
        tokens = {
            name: await _acquire(mine.acquire(member_key(group, name), owner="a", seconds=LONG, note=f"of {name}"))
            for name in ("gone", "here", "there")
        }
        silent = await _acquire(other.acquire(member_key(group, "silent"), owner="b", seconds=self.short))

        await other.release(member_key(group, "gone"), token=tokens["gone"])
        await self.advance(self.short * 1.5)

        found = await other.members(group)
        assert list(found) == ["here", "there"]
        for name, lease in found.items():
            assert (lease.owner, lease.token, lease.note) == ("a", tokens[name], f"of {name}")
            assert LONG - 60 - 2 * self.short < lease.left <= LONG
        assert not await other.renew(member_key(group, "silent"), token=silent, seconds=LONG)

    @case
    async def test_groups_are_separate_and_start_empty(self) -> None:
        mine = self.coordinator()
        group = new("group")

        for key in (member_key(f"{group}s", "a"), member_key(group[:-1], "b"), f"{group}:c", group):
            await _acquire(mine.acquire(key, owner="a", seconds=LONG))

        assert await mine.members(group) == {}

    @case
    async def test_member_names_are_used_literally(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        group = new("größe {1}")
        names = ["%", "*", ":lease", "_", "a b", "host:17", "{x}", "ö", "☂"]

        for name in reversed(names):
            await _acquire(mine.acquire(member_key(group, name), owner="a", seconds=LONG))

        assert list(await other.members(group)) == names

    @case
    async def test_a_returning_member_gets_a_larger_token(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        group = new("group")
        key = member_key(group, "m")
        tokens = list[int]()

        for store in (mine, other, mine):
            tokens.append(await _acquire(store.acquire(key, owner="a", seconds=LONG)))
            assert {name: lease.token for name, lease in (await mine.members(group)).items()} == {"m": tokens[-1]}
            await store.release(key, token=tokens[-1])

        assert tokens == sorted(set(tokens))
        assert await mine.members(group) == {}

    @case
    async def test_a_member_stays_as_long_as_it_renews(self) -> None:
        mine, other = self.coordinator(), self.coordinator()
        group = new("group")
        key = member_key(group, "m")
        token = await _acquire(mine.acquire(key, owner="a", seconds=LONG))

        assert await mine.renew(key, token=token, seconds=2 * LONG, note="renewed")
        (held,) = (await other.members(group)).values()
        assert LONG < held.left <= 2 * LONG
        assert held.note == "renewed"

        assert await mine.renew(key, token=token, seconds=self.short)
        await self.advance(self.short * 1.5)
        assert await other.members(group) == {}

    @case
    async def test_many_concurrent_joins_are_all_listed(self) -> None:
        coordinators = [self.coordinator() for _ in range(3)]
        group = new("group")

        await asyncio.gather(
            *(
                coordinators[number % 3].acquire(member_key(group, f"{number:03}"), owner="a", seconds=LONG)
                for number in range(2 * _MANY)
            )
        )

        for coordinator in coordinators:
            assert list(await coordinator.members(group)) == [f"{number:03}" for number in range(2 * _MANY)]


class CoordinatorSuite(CoordinatorCases):
    """`CoordinatorCases` for an adapter that is only a coordinator."""

    def open_coordinator(self) -> Coordinator:
        """Return a new coordinator on the test's server, not yet connected. Called inside the running loop.

        If it has an `aclose`, that is called at the end of the test.
        """
        raise NotImplementedError

    def coordinator(self) -> Coordinator:
        opened = self.open_coordinator()
        close = getattr(opened, "aclose", None)
        if close is not None:
            self.opened.push_async_callback(close)
        return opened


def new(text: str) -> str:
    """Return a name that no other test uses."""
    return f"{text} {uuid.uuid4()}"


async def _acquire(answer: Awaitable[int | Lease]) -> int:
    token = await answer
    assert isinstance(token, int)
    return token
