"""Asyncio tasks that run coroutines, here called work items.

An item that never has to wait is run by a pool task that goes on to the next one: it costs no new task, no callback
and no turn of the loop. An item that has to wait keeps its pool task until it ends, and the task ends with it. So
whatever an item has bound to its task while it waited (timers that cancel it, a cancellation that comes too late)
never meets another item.

Pool tasks are called one by one, each by the one before it, as long as items end at once: one task is enough then.
The more items wait, the more tasks are called in one turn of the loop, up to one for each: what they begin together
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

__all__ = ["LOOP_BUDGET", "Continuation", "Pause", "TaskPool", "WorkItem"]

_log = logging.getLogger("taskmq.worker")

T = TypeVar("T")

WorkItem = Coroutine[Any, Any, bool]
"""Returns whether its task is as it was before."""

LOOP_BUDGET: Final = 0.005
"""For so long, in seconds, pool tasks go on without a turn of the loop, which has sockets and timers to serve."""


class Pause(enum.Enum):
    """Why there is no next item although there may be more to do."""

    TURN = enum.auto()
    """The loop gets a turn first."""
    LEAVE = enum.auto()
    """Another pool task goes on: this one's context variables are not what they were."""


class TaskPool(Generic[T]):
    """Runs work items in asyncio tasks, up to `size` at a time.

    Args:
        size: how many items may be under way at a time.
        take: returns the next item and its owner; None where there is none. It may itself run what never waits, in
            the pool task that calls it.
        more: how many others there may be.
        done: called with an item's owner, and how the item failed, if it did.
        aside: runs that have a slot here without an item; the part that removes one calls `call`.

    Attributes:
        busy: the owner of the item that each pool task runs; may be changed while it does.
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
        # Not the loop's clock, which may stand still within a turn.
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
        # How many are called in one turn of the loop.
        self._reach = 1
        self._turn_began: float | None = None
        self._is_closed = False

    @property
    def room(self) -> int:
        """How many more may be under way."""
        return self.size - len(self.busy) - len(self._aside)

    def call(self) -> None:
        """There may be work: have pool tasks look. They call further ones if there is more."""
        called = len(self._called)
        if called >= self._reach or self._is_closed:
            return
        for _ in range(min(self._reach, self.room, max(self._more(), 1)) - called):
            self._call_one()

    def _call_one(self) -> None:
        while self._idle:
            task, waiter = self._idle.pop()
            # One that was cancelled is about to end.
            if not waiter.done():
                self._called.add(task)
                waiter.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(self._serve(), context=self._context.copy())
        self._called.add(task)
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def carry_out(self, owner: T, item: WorkItem, variables: contextvars.Context) -> None:
        """Run an item in a new pool task, also where there is no room, with these context variables."""
        task = asyncio.get_running_loop().create_task(self._serve_one(owner, item), context=variables)
        self.busy[task] = owner
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def close(self) -> None:
        """End the tasks that have nothing to do; the others end after their item."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for _, waiter in idle:
            if not waiter.done():
                waiter.set_result(None)

    async def closed(self) -> None:
        """Return once every pool task has ended, but for those that are busy."""
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
            # Another task may have it by now.
            self._done(self.busy.pop(me), error)
            if not is_clean or me.cancelling():
                return

    def _has_had_the_turn(self) -> bool:
        """Whether pool tasks have done so much in this turn of the loop that it goes on first."""
        now = self._monotonic()
        if self._turn_began is None:
            # In this order: whatever is raised in between, the turn ends.
            asyncio.get_running_loop().call_soon(self._end_turn)
            self._turn_began = now
        return now - self._turn_began > LOOP_BUDGET

    def _end_turn(self) -> None:
        self._turn_began = None

    def _left(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        # One that was cancelled before its first step.
        self._called.discard(task)
        self._idle = [entry for entry in self._idle if entry[0] is not task]
        if task in self.busy:
            # The same, of one with its own item.
            self._done(self.busy.pop(task), asyncio.CancelledError())
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("a task that carries out runs has failed; another one goes on", exc_info=error)
        if self._more():
            self.call()


class Continuation:
    """What is left of a coroutine that waits for something: to be awaited, once, in the task that has begun it."""

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
