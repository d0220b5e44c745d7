"""Work items in pool tasks: sharing of tasks, and isolation from each other."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable

import pytest

from taskmq.worker.run.task_pool import LOOP_BUDGET, TaskPool, WorkItem
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.worker.staged import settle_loop

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")

Work = Callable[[str], Awaitable[bool]]


class Yard:
    """A pool, its work, and its results.

    Attributes:
        now: the time, which only items advance.
    """

    def __init__(self, size: int = 4) -> None:
        self.now = 0.0
        self.waiting: deque[tuple[str, WorkItem]] = deque()
        self.wait_for_end: list[tuple[str, BaseException | None]] = []
        self.tasks: dict[str, asyncio.Task[object]] = {}
        self.pool: TaskPool[str] = TaskPool(
            size,
            take=self._take,
            more=lambda: len(self.waiting),
            done=lambda *end: self.wait_for_end.append(end),
            monotonic=lambda: self.now,
        )

    def give(self, work: Work, *names: str) -> None:
        async def item(name: str) -> bool:
            task = asyncio.current_task()
            assert task is not None
            self.tasks[name] = task
            return await work(name)

        for name in names:
            self.waiting.append((name, item(name)))
        self.pool.call()

    @property
    def done(self) -> list[str]:
        return [name for name, _ in self.wait_for_end]

    async def close(self) -> None:
        self.pool.close()
        await self.pool.wait_closed()

    def _take(self) -> tuple[str, WorkItem] | None:
        return self.waiting.popleft() if self.waiting else None


def play(test: Callable[[Yard], Awaitable[None]], *, size: int = 4) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        yard = Yard(size)
        await test(yard)
        await yard.close()
        await settle_loop()
        assert asyncio.all_tasks() == before

    asyncio.run(main())


async def at_once(name: str) -> bool:
    return True


async def later(name: str) -> bool:
    await asyncio.sleep(0)
    return True


@run_by(play)
async def test_items_that_never_wait_are_processed_by_one_task_in_one_iteration(yard: Yard, /) -> None:
    yard.give(at_once, *"abcdef")
    await asyncio.sleep(0)

    assert yard.done == list("abcdef")
    assert len(set(yard.tasks.values())) == 1


@run_by(play)
async def test_an_item_that_waits_has_its_task_to_itself_from_then_on(yard: Yard, /) -> None:
    yard.give(at_once, "a")
    yard.give(later, "b", "c")
    yard.give(at_once, "d")
    await settle_loop()

    assert sorted(yard.done) == list("abcd")
    for name in "bc":
        assert all(yard.tasks[name] is not yard.tasks[other] for other in "bcd" if other != name)
        assert yard.tasks[name].done()


@pytest.mark.real_time
async def test_thread_runs_occupy_slots_and_are_settled() -> None:
    aside = {"x", "y"}
    waiting: deque[tuple[str, WorkItem]] = deque([("a", at_once("a"))])
    ended: list[tuple[str, BaseException | None]] = []
    pool: TaskPool[str] = TaskPool(
        2,
        take=lambda: waiting.popleft() if waiting else None,
        more=lambda: len(waiting),
        done=lambda *end: ended.append(end),
        aside=aside,
    )
    seen: list[str] = []

    async def left_by_x() -> bool:
        seen.append(VARIABLE.get())
        await asyncio.sleep(0)
        return True

    async def never() -> bool:
        raise AssertionError

    pool.call()
    await settle_loop()
    assert ended == []
    assert pool.room == 0

    variables = contextvars.copy_context()
    variables.run(VARIABLE.set, "its own")
    pool.carry_out("x", left_by_x(), variables)
    assert list(pool.busy.values()) == ["x"]
    await settle_loop()
    assert ended == [("x", None)]
    assert seen == ["its own"]

    aside.clear()
    pool.call()
    await settle_loop()
    assert [owner for owner, _ in ended] == ["x", "a"]

    item = never()
    pool.carry_out("cancelled", item, variables)
    next(iter(pool.busy)).cancel()
    await settle_loop()
    assert isinstance(ended[-1][1], asyncio.CancelledError)
    assert not pool.busy
    item.close()
    pool.close()
    await pool.wait_closed()


@run_by(play)
async def test_no_more_items_are_in_progress_than_there_is_room_for(yard: Yard, /) -> None:
    gate = asyncio.Event()
    most = 0

    async def hold(name: str) -> bool:
        nonlocal most
        most = max(most, len(yard.pool.busy))
        await gate.wait()
        return True

    yard.give(hold, *"abcdefgh")
    await settle_loop()
    assert sorted(yard.pool.busy.values()) == list("abcd")
    gate.set()
    await settle_loop()
    assert sorted(yard.done) == list("abcdefgh")
    assert most == 4

    gate.clear()
    yard.pool.size = 6
    yard.give(hold, *"stuvwxyz")
    await settle_loop()
    assert len(yard.pool.busy) == 6
    gate.set()
    await settle_loop()


@run_by(play, size=64)
async def test_a_longer_backlog_starts_more_items_per_loop_iteration(yard: Yard, /) -> None:
    gate = asyncio.Event()

    async def hold(name: str) -> bool:
        await gate.wait()
        return True

    async def turns_until_all_are_begun() -> int:
        gate.clear()
        yard.give(hold, *map(str, range(64)))
        turns = 0
        while len(yard.pool.busy) < 64:
            await asyncio.sleep(0)
            turns += 1
        gate.set()
        await settle_loop()
        return turns

    assert await turns_until_all_are_begun() <= 8
    assert await turns_until_all_are_begun() <= 2
    assert len(yard.done) == 128

    yard.give(at_once, *"abcdefgh")
    yard.give(at_once, *"ijklmnop")
    await settle_loop()
    before = asyncio.all_tasks()
    yard.give(at_once, *"qrstuvwxyz")

    # One is enough again.
    assert len(asyncio.all_tasks() - before) <= 1
    await settle_loop()
    assert len({yard.tasks[name] for name in "qrstuvwxyz"}) == 1


@run_by(play)
async def test_a_cancelled_item_cancels_no_other(yard: Yard, /) -> None:
    async def hold(name: str) -> bool:
        await asyncio.Event().wait()
        return True

    yard.give(hold, "a")
    await settle_loop()
    yard.tasks["a"].cancel()
    yard.give(later, "b", "c")
    await settle_loop()

    (first, error), *rest = yard.wait_for_end
    assert (first, type(error)) == ("a", asyncio.CancelledError)
    assert sorted(rest) == [("b", None), ("c", None)]


@run_by(play)
async def test_an_item_may_survive_its_cancellation(yard: Yard, /) -> None:
    async def stubborn(name: str) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return True

    yard.give(stubborn, "a")
    await settle_loop()
    yard.tasks["a"].cancel()
    await settle_loop()

    assert yard.wait_for_end == [("a", None)]


@run_by(play)
async def test_a_cancellation_after_the_end_of_its_item_cancels_no_other(yard: Yard, /) -> None:
    async def cancels_itself(name: str) -> bool:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return True

    yard.give(cancels_itself, "a")
    yard.give(later, "b")
    await settle_loop()

    assert sorted(yard.wait_for_end) == [("a", None), ("b", None)]


@run_by(play)
async def test_a_leftover_timer_of_an_item_cancels_no_other(yard: Yard, /) -> None:
    async def leaves_a_timer(name: str) -> bool:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        return True

    async def long(name: str) -> bool:
        await asyncio.sleep(0.03)
        return True

    yard.give(leaves_a_timer, "a")
    await settle_loop()
    yard.give(long, "b", "c", "d")
    await asyncio.sleep(0.05)
    await settle_loop()

    assert sorted(yard.wait_for_end) == [("a", None), ("b", None), ("c", None), ("d", None)]


@pytest.mark.parametrize("waits", [False, True])
@run_by(play)
async def test_context_variables_of_an_item_are_hidden_from_others_on_request(yard: Yard, /, waits: bool) -> None:
    seen: dict[str, str] = {}

    async def sets(name: str) -> bool:
        seen[name] = VARIABLE.get()
        VARIABLE.set(name)
        if waits:
            await asyncio.sleep(0)
        return False

    yard.give(sets, *"abc")
    await settle_loop()

    assert seen == dict.fromkeys("abc", "unset")


@pytest.mark.parametrize("waits", [False, True])
@run_by(play)
async def test_errors_are_reported_and_the_work_continues(yard: Yard, /, waits: bool) -> None:
    async def fails(name: str) -> bool:
        if waits:
            await asyncio.sleep(0)
        raise ValueError(name)

    yard.give(fails, "a", "b")
    yard.give(at_once, "c")
    await settle_loop()

    assert sorted((name, str(error)) for name, error in yard.wait_for_end) == [("a", "a"), ("b", "b"), ("c", "None")]


@run_by(play)
async def test_tools_that_need_the_current_task_work_in_every_item(yard: Yard, /) -> None:
    async def wait_timed(name: str) -> bool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        async with asyncio.timeout(1):
            pass
        return True

    yard.give(wait_timed, *"abcdef")
    await until(lambda: len(yard.wait_for_end) == 6)

    assert all(error is None for _, error in yard.wait_for_end)


@run_by(play)
async def test_the_loop_runs_between_many_items_that_never_wait(yard: Yard, /) -> None:
    turns = 0

    async def slow(name: str) -> bool:
        yard.now += 2 * LOOP_BUDGET
        return await at_once(name)

    async def count() -> None:
        nonlocal turns
        while len(yard.wait_for_end) < 50:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yard.give(slow, *(str(number) for number in range(50)))
    await counting

    assert turns > 5


@run_by(play, size=64)
async def test_the_loop_runs_between_many_slow_items(yard: Yard, /) -> None:
    gate = asyncio.Event()

    async def hold(name: str) -> bool:
        yard.now += 0.002
        await gate.wait()
        return True

    for _ in range(2):
        yard.give(hold, *map(str, range(60)))
        most = 0
        while (before := len(yard.pool.busy)) < 60:
            await asyncio.sleep(0)
            most = max(most, len(yard.pool.busy) - before)
        gate.set()
        await settle_loop()
        gate.clear()

        # The third one exceeds 5 ms.
        assert most <= 3


@run_by(play)
async def test_the_owner_of_an_item_may_change_while_it_runs(yard: Yard, /) -> None:
    async def hold(name: str) -> bool:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return True

    yard.give(hold, "a")
    await asyncio.sleep(0)
    (task,) = yard.pool.busy
    yard.pool.busy[task] = "b"
    await settle_loop()

    assert yard.wait_for_end == [("b", None)]


@run_by(play)
async def test_a_pool_task_cancelled_before_its_first_step_or_while_idle_is_replaced(yard: Yard, /) -> None:
    others = asyncio.all_tasks()
    yard.give(at_once, "a")
    (asyncio.all_tasks() - others).pop().cancel()
    await settle_loop()
    assert yard.done == ["a"]

    for task in asyncio.all_tasks() - others:
        task.cancel()
    yard.give(later, "b")
    await settle_loop()
    assert yard.done == ["a", "b"]


@run_by(play)
async def test_a_closed_pool_finishes_started_items_and_starts_no_more(yard: Yard, /) -> None:
    yard.give(later, "a")
    await asyncio.sleep(0)
    yard.pool.close()
    yard.give(at_once, "b")
    await settle_loop()

    assert yard.done == ["a"]
    yard.waiting.pop()[1].close()
