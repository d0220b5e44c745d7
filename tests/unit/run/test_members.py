"""Groups of processes: members, notifications, and their shares of the items."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq import InvalidOption, LockLost, LockTimeout, Member, StateUnavailable, TaskMQ, UnsupportedFeature
from taskmq.contracts.stores import Coordinator, Lease, member_key
from taskmq.run.locks import Lock
from taskmq_local import forget_memory
from tests.virtual_time import run


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    name = uuid.uuid4().hex
    with TaskMQ(f"memory://{name}") as app:
        yield app
    forget_memory(name)


class Seats:
    """Members in a dictionary, by the loop's clock.

    Attributes:
        is_down: every call fails.
        looks: number of reads of the members.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int, float, str]] = {}
        self._last = 0
        self.is_down = False
        self.looks = 0

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        if (held := await self.find(key)) is not None:
            return held
        self._last += 1
        self._held[key] = (owner, self._last, _now() + seconds, note)
        return self._last

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        held = await self.find(key)
        if held is None or held.token != token:
            return False
        self._held[key] = (held.owner, token, _now() + seconds, held.note if note is None else note)
        return True

    async def release(self, key: str, *, token: int) -> None:
        if (held := await self.find(key)) is not None and held.token == token:
            del self._held[key]

    async def find(self, key: str) -> Lease | None:
        if self.is_down:
            raise StateUnavailable("no state (staged)")
        owner, token, until, note = self._held.get(key, ("", 0, 0.0, ""))
        left = until - _now()
        return Lease(owner=owner, token=token, left=left, note=note) if left > 0 else None

    async def members(self, group: str) -> dict[str, Lease]:
        self.looks += 1
        prefix = member_key(group, "")
        found = {
            key.removeprefix(prefix): await self.find(key) for key in sorted(self._held) if key.startswith(prefix)
        }
        return {name: lease for name, lease in found.items() if lease is not None}

    def member(self, name: str, **options: Any) -> Member:
        lease = Lock(
            name,
            leases=lambda: self,
            call=asyncio.run,
            owner="me",
            key=member_key("group", name),
            monotonic=_now,
            **options,
        )
        coordinator: Callable[[], Coordinator] = lambda: self  # noqa: E731 - its type says that these are all methods
        return Member("group", name, coordinator=coordinator, lease=lease)


def _now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.real_time
async def test_members_see_each_other_while_their_blocks_run(app: TaskMQ) -> None:
    async with app.member("importers", "b") as b:
        assert await b.members() == ["b"]
        async with app.member("importers", "a") as a, app.member("others", "c") as c:
            assert await b.members() == await a.members() == ["a", "b"]
            assert await c.members() == ["c"]
            assert a.token > b.token > 0
        assert await b.members() == ["b"]
    assert b.token == 0
    await app.aclose()


@pytest.mark.real_time
async def test_a_member_without_a_name_gets_a_unique_one(app: TaskMQ) -> None:
    async with app.member("importers") as one, app.member("importers") as other:
        assert one.name != other.name
        assert await one.members() == sorted([one.name, other.name])
    await app.aclose()


@pytest.mark.real_time
async def test_a_taken_name_is_waited_for(app: TaskMQ) -> None:
    joined, left = asyncio.Event(), asyncio.Event()
    tokens = list[int]()

    async def first() -> None:
        async with app.member("importers", "a") as member:
            tokens.append(member.token)
            joined.set()
            await left.wait()

    async def second() -> None:
        await joined.wait()
        with pytest.raises(LockTimeout):
            await app.member("importers", "a", timeout=0).__aenter__()
        left.set()
        async with app.member("importers", "a") as member:
            tokens.append(member.token)

    await asyncio.gather(first(), second())
    assert tokens == sorted(set(tokens))
    await app.aclose()


async def test_changes_are_reported_once_each_including_a_dead_member(app: TaskMQ) -> None:
    del app

    seats = Seats()
    async with seats.member("a") as a:
        changes = a.changes()
        assert await anext(changes) == ["a"]
        began = _now()
        # It dies at once, so its leases are not renewed.
        await seats.acquire(member_key("group", "b"), owner="b", seconds=10)
        assert await anext(changes) == ["a", "b"]
        assert await anext(changes) == ["a"]
        assert 10 <= _now() - began <= 12
        await changes.aclose()


async def test_a_member_that_returned_between_two_polls_is_a_change() -> None:
    seats = Seats()
    async with seats.member("a") as a:
        key = member_key("group", "b")
        token = await seats.acquire(key, owner="b", seconds=1000)
        assert isinstance(token, int)
        changes = a.changes()
        assert await anext(changes) == ["a", "b"]
        await seats.release(key, token=token)
        await seats.acquire(key, owner="b", seconds=1000)
        assert await anext(changes) == ["a", "b"]
        await changes.aclose()


async def test_the_last_seen_members_apply_while_the_state_is_unavailable() -> None:
    seats = Seats()
    async with seats.member("a", lease=60) as a:
        changes = a.changes(every=5)
        assert await anext(changes) == ["a"]
        seats.is_down = True
        looking = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(29)
        assert not looking.done()
        seats.is_down = False
        await seats.acquire(member_key("group", "b"), owner="b", seconds=1000)
        assert await looking == ["a", "b"]
        assert seats.looks > 6
        await changes.aclose()


def test_a_member_that_others_lost_is_reported() -> None:
    async def wait_for_notice(seats: Seats, member: Member) -> None:
        async with member:
            async for members in member.changes():
                assert members == ["a"]
                seats.is_down = True
                with pytest.raises(StateUnavailable):
                    await member.members()

    async def main() -> None:
        seats = Seats()
        member, began = seats.member("a", lease=10), _now()
        with pytest.raises(LockLost):
            await wait_for_notice(seats, member)
        assert 10 <= _now() - began <= 12

    run(main())


def test_each_item_has_one_member_and_moves_only_if_that_one_leaves() -> None:
    seats = Seats()
    names = [f"m{number}" for number in range(5)]
    items = [f"part {number}" for number in range(500)]

    shares = {name: seats.member(name).share(items, names) for name in names}
    fewer = {name: seats.member(name).share(items, names[1:]) for name in names[1:]}

    assert sorted(item for share in shares.values() for item in share) == sorted(items)
    assert all(50 < len(share) < 150 for share in shares.values())
    assert sorted(item for share in fewer.values() for item in share) == sorted(items)
    assert all(set(shares[name]) <= set(fewer[name]) for name in names[1:])
    assert seats.member("m0").share(items, []) == []


@pytest.mark.parametrize("group", ["", "a:b", "a b", "ö", "x" * 129])
def test_an_invalid_group_name_is_refused(app: TaskMQ, group: str) -> None:
    with pytest.raises(InvalidOption, match="1 to 128"):
        app.member(group)


@pytest.mark.parametrize("options", [{"name": ""}, {"name": "x" * 256}, {"lease": 0.5}])
def test_an_invalid_member_is_refused(app: TaskMQ, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        app.member("group", **options)


@pytest.mark.real_time
async def test_members_are_polled_at_an_interval(app: TaskMQ) -> None:
    async with app.member("group") as member:
        with pytest.raises(InvalidOption, match="more than 0"):
            await anext(member.changes(every=0))
    await app.aclose()


def test_members_without_a_state_and_a_store_are_refused_with_a_remedy() -> None:
    app = TaskMQ("amqp://nowhere/")

    with pytest.raises(UnsupportedFeature, match="need a state or a job store"):
        app.member("group")
    with pytest.raises(UnsupportedFeature, match="need a state or a job store"):
        app.lock("name")


@pytest.mark.real_time
async def test_a_job_store_holds_locks_and_members_if_there_is_no_state(tmp_path: Path) -> None:
    app = TaskMQ("amqp://nowhere/", store=f"sqlite:///{tmp_path}/jobs.db")

    async with app.lock("name") as lock, app.member("group", "a") as member:
        assert lock.token > 0
        assert await member.members() == ["a"]
        leases = app.sessions.store().dispatching.leases
        assert list(await leases.members("group")) == ["a"]
        held = await leases.find("lock:name")
        assert held is not None
        assert held.token == lock.token
    await app.aclose()
