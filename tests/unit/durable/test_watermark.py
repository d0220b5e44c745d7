"""Marks in a store: their writer notices when the store lost data or its clock was set back."""

import asyncio

import pytest

from taskmq.contracts.stores import Lease
from taskmq.durable.watermark import Watermark
from taskmq.errors import StateUnavailable, StoreWentBack
from taskmq.run.locks import OwnLeases


class Copied(OwnLeases):
    """Leases that can be restored to an earlier copy.

    Attributes:
        behind: seconds by which its clock is late.
        loses: number of further calls that take effect and then fail.
    """

    def __init__(self) -> None:
        super().__init__(lambda: asyncio.get_running_loop().time() - self.behind)
        self.behind = 0.0
        self.loses = 0

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        answer = await super().acquire(key, owner=owner, seconds=seconds, note=note)
        self._lose()
        return answer

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        answer = await super().renew(key, token=token, seconds=seconds, note=note)
        self._lose()
        return answer

    def backup(self) -> "Copied":
        copy = Copied()
        copy._held = dict(self._held)
        return copy

    def restore(self, backup: "Copied") -> None:
        self._held = dict(backup._held)

    def _lose(self) -> None:
        if self.loses:
            self.loses -= 1
            raise StateUnavailable("the answer was lost (staged)")


@pytest.fixture
def leases() -> Copied:
    return Copied()


def open_watermark(leases: Copied) -> Watermark:
    return Watermark(leases, address="postgresql://host/db", me="me")


async def expect_kept(mark: Watermark, times: int = 3) -> None:
    for _ in range(times):
        await mark.keep()
        await asyncio.sleep(1)


async def test_a_store_that_advances_is_never_refused(leases: Copied) -> None:
    # More than the allowed lag of a clock.
    await expect_kept(open_watermark(leases), 10_000)


async def test_a_store_without_the_last_mark_is_refused_with_a_remedy(leases: Copied) -> None:
    mark = open_watermark(leases)
    await expect_kept(mark)
    backup = leases.backup()
    await expect_kept(mark, 1)

    leases.restore(backup)

    with pytest.raises(StoreWentBack, match=r"lost transactions: it has mark 2 .*had confirmed mark 3.*recovery\.md"):
        await mark.keep()


async def test_a_store_older_than_the_first_mark_is_refused(leases: Copied) -> None:
    mark, backup = open_watermark(leases), leases.backup()
    await expect_kept(mark)

    leases.restore(backup)

    with pytest.raises(StoreWentBack, match="it has no mark of this scheduler"):
        await mark.keep()


async def test_a_mark_with_a_lost_confirm_may_exist_or_not(leases: Copied) -> None:
    for is_there in (True, False):
        mark = open_watermark(leases)
        await expect_kept(mark)
        backup = leases.backup()
        leases.loses = 1
        with pytest.raises(StateUnavailable):
            await mark.keep()
        if not is_there:
            leases.restore(backup)
        await expect_kept(mark)
        await mark.end()


async def test_a_first_mark_with_a_lost_confirm_is_found_again(leases: Copied) -> None:
    mark = open_watermark(leases)
    leases.loses = 1
    with pytest.raises(StateUnavailable):
        await mark.keep()
    await expect_kept(mark)


async def test_a_store_whose_clock_was_set_back_is_refused(leases: Copied) -> None:
    mark = open_watermark(leases)
    await expect_kept(mark)
    leases.behind = 30
    await expect_kept(mark)
    leases.behind = 300

    with pytest.raises(StoreWentBack, match=r"its clock went back by about 270 s.*NTP"):
        await mark.keep()


async def test_a_clock_that_jumps_ahead_loses_nothing_and_a_jump_back_is_reported(leases: Copied) -> None:
    mark = open_watermark(leases)
    await expect_kept(mark)
    leases.behind = -3605
    await expect_kept(mark)
    leases.behind = 0

    with pytest.raises(StoreWentBack, match=r"its clock went back by about 3605 s"):
        await mark.keep()
    # A process started after that begins with its own mark.
    await expect_kept(Watermark(leases, address="db", me="another"))


async def test_a_day_without_answers_allows_no_conclusion(leases: Copied) -> None:
    mark = open_watermark(leases)
    backup = leases.backup()
    await expect_kept(mark)
    await asyncio.sleep(86_401)
    leases.restore(backup)

    await expect_kept(mark)


async def test_a_day_of_suspended_sleep_allows_no_conclusion() -> None:
    # The loop's clock stands still in the meantime; that of the store does not.
    suspended = 0.0
    loop = asyncio.get_running_loop()
    leases = OwnLeases(lambda: loop.time() + suspended)
    mark = Watermark(leases, address="db", me="me", wall=lambda: loop.time() + suspended)
    await expect_kept(mark)
    suspended = 86_401

    await expect_kept(mark)

    found = await leases.find("mark:me")
    assert found is not None
    assert found.note == "2"


async def test_a_closing_process_leaves_no_mark(leases: Copied) -> None:
    mark = open_watermark(leases)
    await mark.end()
    await expect_kept(mark)
    await mark.end()

    assert await leases.find("mark:me") is None
