import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVarTuple

import pytest

from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption
from taskmq.model.clock import Clock
from taskmq.testing import FakeClock

pytestmark = pytest.mark.real_time

_Ts = TypeVarTuple("_Ts")


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run_with_timeout() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(run_with_timeout())


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=lambda clock: type(clock).__name__)
async def test_both_clocks_meet_the_contract(clock: Clock) -> None:
    now = clock.now_ms()
    await clock.sleep_until(now)
    await clock.sleep_until(now - 10_000)
    await clock.sleep_until(0)
    assert now <= clock.now_ms() < now + 5_000


def test_the_system_clock_returns_the_time_of_the_machine() -> None:
    before = time.time()
    now = SystemClock().now_ms()
    after = time.time()

    assert int(before * 1000) - 1 <= now <= int(after * 1000) + 1


async def test_the_system_clock_sleeps_at_least_until_the_instant() -> None:
    clock = SystemClock()
    instant = clock.now_ms() + 30
    await clock.sleep_until(instant)
    assert clock.now_ms() >= instant


def test_the_system_clock_sleeps_in_slices_and_so_notices_a_jump_of_the_wall_clock() -> None:
    class JumpingClock(SystemClock):
        """A clock that jumps to the instant once a slice has begun."""

        def __init__(self) -> None:
            self.answers = [0, 10_000_000]

        def now_ms(self) -> int:
            return self.answers.pop(0)

    class HastyLoop(asyncio.SelectorEventLoop):
        def call_later(
            self,
            delay: float,
            callback: Callable[[*_Ts], object],
            *args: *_Ts,
            context: contextvars.Context | None = None,
        ) -> asyncio.TimerHandle:
            slices.append(delay)
            return super().call_later(0, callback, *args, context=context)

    slices: list[float] = []
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(JumpingClock().sleep_until(9_000_000))

    assert slices == [60]


def test_the_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(1_000)

    assert (clock.now_ms(), clock.now_ms()) == (1_000, 1_000)
    clock.advance(timedelta(seconds=2))
    assert clock.now_ms() == 3_000
    clock.advance(0.5)
    assert clock.now_ms() == 3_500
    clock.advance("1m")
    assert clock.now_ms() == 63_500
    clock.advance(0)
    assert clock.now_ms() == 63_500


@pytest.mark.parametrize("step", [-1, timedelta(microseconds=-1), "soon"])
def test_the_fake_clock_never_goes_back(step: float | str | timedelta) -> None:
    clock = FakeClock(1_000)

    with pytest.raises(InvalidOption, match=r"^step="):
        clock.advance(step)

    assert clock.now_ms() == 1_000


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_sleeper_wakes_at_its_instant_and_not_before() -> None:
    clock = FakeClock(0)
    sleeper = asyncio.create_task(clock.sleep_until(100))
    await clock.wait_for_sleepers()
    assert (clock.sleepers, clock.next_instant) == (1, 100)

    clock.advance(timedelta(milliseconds=99))
    await _settle()
    assert not sleeper.done()
    clock.advance(timedelta(milliseconds=1))
    await sleeper
    assert (clock.sleepers, clock.next_instant) == (0, None)


async def test_sleepers_wake_in_the_order_of_their_instants_and_then_of_their_calls() -> None:
    clock, woken = FakeClock(0), list[str]()

    async def sleep(name: str, instant: int) -> None:
        await clock.sleep_until(instant)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, instant in [("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("d", 1_000)]:
            group.create_task(sleep(name, instant))
        await clock.wait_for_sleepers(5)
        clock.advance(0.5)
        await _settle()
        assert woken == ["a", "b1", "b2", "c"]
        clock.advance(0.5)
    assert woken[-1] == "d"


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock(0)
    sleepers = [asyncio.create_task(clock.sleep_until(instant)) for instant in (5, 5, 6)]
    await clock.wait_for_sleepers(3)

    sleepers[1].cancel()
    await asyncio.wait([sleepers[1]])

    assert (clock.sleepers, repr(clock)) == (2, "<FakeClock at 0 ms, 2 sleeping>")
    clock.advance(1)
    await asyncio.gather(sleepers[0], sleepers[2])


async def test_a_sleeper_cancelled_while_it_wakes_stays_cancelled() -> None:
    clock = FakeClock(0)
    sleeper = asyncio.create_task(clock.sleep_until(5))
    await clock.wait_for_sleepers()

    clock.advance(1)
    sleeper.cancel()
    await asyncio.wait([sleeper])

    assert sleeper.cancelled()
    assert clock.sleepers == 0


def test_another_thread_can_wake_sleepers_on_several_loops() -> None:
    clock = FakeClock(0)
    woken: list[int] = []

    def run(number: int) -> None:
        async def sleep() -> None:
            await clock.sleep_until(1_000 + number)
            woken.append(number)

        _run(sleep)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(clock.wait_for_sleepers(4, timeout=20))

    clock.advance(2)

    for thread in threads:
        thread.join(timeout=20)
    assert sorted(woken) == [0, 1, 2, 3]


def test_a_sleeper_with_a_closed_loop_does_not_stop_the_others() -> None:
    clock = FakeClock(0)
    forgotten = asyncio.new_event_loop()
    sleeping = forgotten.create_task(clock.sleep_until(5))
    forgotten.run_until_complete(clock.wait_for_sleepers())
    forgotten.close()

    async def test() -> None:
        other = asyncio.create_task(clock.sleep_until(6))
        await clock.wait_for_sleepers(2)
        clock.advance(1)
        await other

    _run(test)
    assert not sleeping.done()
    # Its loop was discarded on purpose; the collector's complaint is irrelevant here.
    sleeping._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_waiting_for_absent_sleepers_times_out() -> None:
    with pytest.raises(TimeoutError):
        await FakeClock().wait_for_sleepers(timeout=0.01)


def test_a_test_may_pass_any_clock_that_meets_the_contract() -> None:
    sleep: Callable[[int], Awaitable[None]] = FakeClock().sleep_until
    clocks: list[Clock] = [FakeClock(), SystemClock()]

    assert callable(sleep)
    assert len(clocks) == 2
