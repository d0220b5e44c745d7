"""Runner of the suites' tests: plain methods around coroutines, each with a deadline.

Needs no pytest plugin; unittest's runner or a plain call work as well.
"""

import asyncio
import functools
import gc
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

_S = TypeVar("_S", bound="Suite")
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)


class Suite:
    """Base of the suites.

    After each test everything that it opened is closed; no task may be left, and no exception may have reached the
    loop's handler.

    Attributes:
        deadline: seconds for one test.
        patience: seconds for anything that must happen but may take time. Ends a hanging test: a busy machine may
            need 10 s to start a process.
    """

    deadline: float = 100
    patience: float = 30
    opened: AsyncExitStack

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop for one test; override it to test with another loop than asyncio's."""
        return asyncio.new_event_loop()

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Freeze older objects, so that collecting this test's garbage is fast. They stay frozen: the collector would
        # scan them in most of the tests that follow, for a second each if thousands of tests are loaded.
        gc.freeze()
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            runner.run(self._whole(test))

    async def _whole(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(self.deadline), AsyncExitStack() as self.opened:
            await test()
        await only_these_tasks({asyncio.current_task()})
        # Garbage found only by the collector, such as a future with an unread exception, belongs to this test.
        gc.collect()
        await asyncio.sleep(0)
        assert not complaints, complaints


def case(test: Callable[[_S], Coroutine[Any, Any, None]]) -> Callable[[_S], None]:
    """Wrap a test coroutine in a plain method."""

    @functools.wraps(test)
    def run(self: _S) -> None:
        self.run(functools.partial(test, self))

    return run


async def eventually(look: Callable[[], Awaitable[_T]], expected: _T, *, within: float) -> None:
    """Call `look` until it returns `expected`.

    Raises:
        AssertionError: it did not within `within` seconds; the message has the last value.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while True:
        began = loop.time()
        if (seen := await look()) == expected:
            return
        now = loop.time()
        assert now < end, f"expected {expected!r} within {within} s, last seen: {seen!r}"
        await asyncio.sleep(max(0.02, now - began))


async def only_these_tasks(expected: Collection[asyncio.Task[Any] | None]) -> None:
    """Wait until no other task runs on this loop.

    Raises:
        AssertionError: a task keeps running.
    """
    left: set[asyncio.Task[Any]] = set()
    for _ in range(50):
        left = asyncio.all_tasks().difference(expected)
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks that should have ended are still running: {left!r}")


@contextmanager
def raises(kind: type[_E]) -> Generator[list[_E], None, None]:
    """Expect an error of this kind in the block; the list holds it afterwards."""
    caught: list[_E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"


@dataclass(frozen=True)
class CancelPoint:
    """A point in the life of a call.

    Attributes:
        turns: this many turns of the loop after its start.
        seconds: and then this many seconds.
        wakeups: or when its awaited future has ended for the n-th time, before it resumes: it never sees the result.
    """

    turns: int = 0
    seconds: float = 0
    wakeups: int = 0

    TIMED: ClassVar[tuple["CancelPoint", ...]]
    ALL: ClassVar[tuple["CancelPoint", ...]]

    def __str__(self) -> str:
        if self.wakeups:
            return f"at wake-up {self.wakeups}"
        return f"after {self.turns} turns and {self.seconds * 1000:g} ms"

    async def reach(self) -> None:
        """Wait until this point, for a timed one."""
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.seconds:
            await asyncio.sleep(self.seconds)


CancelPoint.TIMED = (
    *(CancelPoint(turns=turns) for turns in (*range(8), 12, 20)),
    *(CancelPoint(turns=1, seconds=seconds) for seconds in (0.0005, 0.001, 0.002, 0.005, 0.012, 0.03)),
)
CancelPoint.ALL = (*CancelPoint.TIMED, *(CancelPoint(wakeups=wakeups) for wakeups in range(1, 9)))


async def cancel_at(point: CancelPoint, call: Coroutine[Any, Any, _T], *, within: float) -> _T | None:
    """Start `call` and cancel it at `point`; return its result if it was quicker, else None."""
    if point.wakeups:
        task = asyncio.create_task(_cancelled_when_woken(call, point.wakeups))
    else:
        task = asyncio.create_task(call)
        await point.reach()
        task.cancel()
    await asyncio.wait({task}, timeout=within)
    assert task.done(), f"cancelled {point}, the call goes on {within} s later"
    return None if task.cancelled() else task.result()


async def _cancelled_when_woken(call: Coroutine[Any, Any, _T], wakeups: int) -> _T:
    return await _CancelledWhenWoken(call, wakeups)


class _CancelledWhenWoken(Generic[_T]):
    """Drives a coroutine and throws the cancellation in where it would otherwise resume."""

    def __init__(self, call: Coroutine[Any, Any, _T], wakeups: int) -> None:
        self._call = call
        self._wakeups = wakeups

    def __await__(self) -> Generator[Any, Any, _T]:
        steps = self._call.__await__()
        left = self._wakeups
        try:
            awaited = next(steps)
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, whatever it is
                    awaited = steps.throw(error)
                else:
                    left -= 1
                    awaited = next(steps) if left else steps.throw(asyncio.CancelledError())
        except StopIteration as stop:
            result: _T = stop.value
            return result
