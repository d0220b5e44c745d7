"""Pool of asyncio tasks that run coroutines, here called work items.

An item that never waits is run by a pool task that continues with the next one: it costs no new task, no callback and
no turn of the loop. An item that waits keeps its pool task until it ends, and the task ends with it. So whatever is
bound to the task while the item waited (timers that cancel it, a late cancellation) never affects another item.

Pool tasks are called one by one, each by the one before it, while items end without waiting: then one task is enough.
The more items wait, the more tasks are called in one turn of the loop, up to one for each. What they start together
is sent together, to a server or over a connection that they share.

A run that already has a slot outside of the pool (`aside`) gets a pool task to settle it.

A pool task also ends when its item has changed context variables, or when it was cancelled.
"""

import asyncio
import contextvars
import enum
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Sized
from typing import Any, Final, Generic, TypeVar

from taskmq.run.forks import NO_LOOP, PROCESS, leave_fork
from taskmq.run.journal import FLOW

_log = logging.getLogger("taskmq.worker")

T = TypeVar("T")

WorkItem = Coroutine[Any, Any, bool]
"""Coroutine of one item; it returns whether its task is unchanged."""

LOOP_BUDGET: Final = 0.005
"""Maximum seconds for which pool tasks continue without a turn of the loop, which has sockets and timers to serve."""


class Pause(enum.Enum):
    """Reason why there is no next item although there may be more work."""

    TURN = enum.auto()
    """The loop gets a turn first."""
    LEAVE = enum.auto()
    """Another pool task continues: this one's context variables were changed."""


class TaskPool(Generic[T]):
    """Runs work items in asyncio tasks, up to `size` at a time.

    Args:
        size: maximum of concurrent items.
        take: returns the next item and its owner; None if there is none. It may itself run what never waits, in the
            pool task that calls it.
        more: returns an upper bound of further items.
        done: called with an item's owner, and with its error, if any.
        aside: runs that occupy a slot here without an item; the part that removes one calls `call`.

    Attributes:
        busy: the owner of each pool task's item; may be changed while it runs.
    """

    def __init__(
        self,
        size: int,
        *,
        take: Callable[[], tuple[T, WorkItem] | Pause | None],
        more: Callable[[], int],
        done: Callable[[T, BaseException | None], None],
        aside: Sized = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.size = size
        # Not the loop's clock, which may be constant within a turn.
        self._monotonic = monotonic
        self.busy: dict[asyncio.Task[None], T] = {}
        self._take = take
        self._more = more
        self._done = done
        self._aside = aside
        self._context = contextvars.copy_context()
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._called: set[asyncio.Task[None]] = set()
        # Number of tasks called in one turn of the loop.
        self._reach = 1
        self._turn_began: float | None = None
        self._is_closed = False

    @property
    def room(self) -> int:
        """Number of further items that may start."""
        return self.size - len(self.busy) - len(self._aside)

    def call(self) -> None:
        """Have pool tasks look for work. They call further tasks if there is more."""
        called = len(self._called)
        if called >= self._reach or self._is_closed:
            return
        for _ in range(min(self._reach, self.room, max(self._more(), 1)) - called):
            self._call_one()

    def _call_one(self) -> None:
        while self._idle:
            task, waiter = self._idle.pop()
            # A cancelled task is about to end.
            if not waiter.done():
                self._called.add(task)
                waiter.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(self._serve(), name=FLOW, context=self._context.copy())
        self._called.add(task)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def carry_out(self, owner: T, item: WorkItem, variables: contextvars.Context) -> None:
        """Run an item in a new pool task with these context variables, even without room."""
        task = asyncio.get_running_loop().create_task(self._serve_one(owner, item), name=FLOW, context=variables)
        self.busy[task] = owner
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def close(self) -> None:
        """End the idle tasks; the others end after their item."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for _, waiter in idle:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_closed(self) -> None:
        """Return once every pool task has ended, except busy ones."""
        if leaving := self._tasks - self.busy.keys():
            await asyncio.wait(leaving)

    async def _serve_one(self, owner: T, item: WorkItem) -> None:
        me = asyncio.current_task()
        assert me is not None
        error: BaseException | None = None
        try:
            await item
        except BaseException as failure:  # noqa: BLE001 - handed to the item's owner
            error = failure
        self._done(self.busy.pop(me, owner), error)

    async def _serve(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._called.discard(me)
        while not self._is_closed:
            if self._has_had_the_turn():
                await asyncio.sleep(0)
                continue
            taken = self._take() if self.room > 0 else None
            if taken is None:
                self._reach = max(self._reach // 2, 1)
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append((me, waiter))
                await waiter
                self._called.discard(me)
                continue
            if isinstance(taken, Pause):
                if taken is Pause.LEAVE:
                    return
                await asyncio.sleep(0)
                continue
            owner, item = taken
            self.busy[me] = owner
            if self._more():
                self.call()
            error: BaseException | None = None
            is_clean = False
            try:
                waits_for = item.send(None)
            except StopIteration as stop:
                is_clean = stop.value
                self._reach = max(self._reach // 2, 1)
            except BaseException as failure:  # noqa: BLE001 - handed to the item's owner
                error = failure
            else:
                self._reach = min(self._reach * 2, self.size)
                try:
                    await Continuation(item, waits_for)
                except BaseException as failure:  # noqa: BLE001 - as above
                    error = failure
            # Another task may own it by now.
            self._done(self.busy.pop(me), error)
            if not is_clean or me.cancelling():
                return

    def _has_had_the_turn(self) -> bool:
        """Return whether pool tasks have done so much in this turn of the loop that it must continue first."""
        now = self._monotonic()
        if self._turn_began is None:
            # In this order: whatever is raised in between, the turn ends.
            asyncio.get_running_loop().call_soon(self._end_turn)
            self._turn_began = now
        return now - self._turn_began > LOOP_BUDGET

    def _end_turn(self) -> None:
        self._turn_began = None

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        # A task that was cancelled before its first step.
        self._called.discard(task)
        self._idle = [entry for entry in self._idle if entry[0] is not task]
        if task in self.busy:
            # The same for a task with its own item.
            self._done(self.busy.pop(task), asyncio.CancelledError())
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("a pool task failed; another one continues", exc_info=error)
        if self._more():
            self.call()


class Continuation:
    """The rest of a coroutine that waits for something, to be awaited once, in the task that started it."""

    __slots__ = ("_item", "_waits_for")

    def __init__(self, item: Coroutine[Any, Any, Any], waits_for: object) -> None:
        self._item = item
        self._waits_for = waits_for
        if PROCESS.is_fork:
            leave_fork(RuntimeError(NO_LOOP))

    def __await__(self) -> Generator[Any, Any, Any]:
        item, waits_for = self._item, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    item.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
                    waits_for = item.throw(error)
                else:
                    waits_for = item.send(value)
                if PROCESS.is_fork:
                    leave_fork(RuntimeError(NO_LOOP))
        except StopIteration as stop:
            return stop.value
