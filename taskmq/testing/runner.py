"""How the tests of the suites are run: plain methods around coroutines, each with a deadline.

No pytest plugin is needed, and unittest's runner or a plain call do as well.
"""

import asyncio
import functools
import gc
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

__all__ = ["CancelPoint", "Suite", "cancelled_at", "case", "eventually", "only_these_tasks", "raises"]

_S = TypeVar("_S", bound="Suite")
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)


class Suite:
    """Base of the suites.

    After each test everything that it opened is closed, no task may be left, and no exception may have gone
    to the loop's handler.

    Attributes:
        deadline: seconds for one test.
        patience: seconds for anything that has to happen but may take its time. It ends what hangs: a busy machine
            may need 10 s to start a process.
    """

    deadline: float = 100
    patience: float = 30
    opened: AsyncExitStack

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop for one test; override it to test with another one than asyncio's."""
        return asyncio.new_event_loop()

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # What was there before is not looked at when this test's garbage is: it would take most of the time.
        gc.freeze()
        try:
            with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
                runner.run(self._whole(test))
        finally:
            gc.unfreeze()

    async def _whole(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(self.deadline), AsyncExitStack() as self.opened:
            await test()
        await only_these_tasks({asyncio.current_task()})
        # What only the collector finds, such as a future whose exception was not looked at, belongs to this test.
        gc.collect()
        await asyncio.sleep(0)
        assert not complaints, complaints


def case(test: Callable[[_S], Coroutine[Any, Any, None]]) -> Callable[[_S], None]:
    """A test written as a coroutine, as a plain method."""

    @functools.wraps(test)
    def run(self: _S) -> None:
        self.run(functools.partial(test, self))

    return run


async def eventually(look: Callable[[], Awaitable[_T]], expected: _T, *, within: float) -> None:
    """Look until `expected` is seen.

    Raises:
        AssertionError: it was not within `within` seconds; says what was seen last.
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
    """Return once no other task runs on this loop.

    Raises:
        AssertionError: one goes on.
    """
    left: set[asyncio.Task[Any]] = set()
    for _ in range(50):
        left = asyncio.all_tasks().difference(expected)
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks that are not needed any more go on: {left!r}")


@contextmanager
def raises(kind: type[_E]) -> Generator[list[_E], None, None]:
    """Catch an error of this kind, which the block has to raise; the list holds it afterwards."""
    caught: list[_E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"


@dataclass(frozen=True)
class CancelPoint:
    """An instant in the life of a call.

    Attributes:
        turns: so many turns of the loop after its start.
        seconds: and then so many seconds.
        wakeups: or when what it awaits has ended for the n-th time, just before it goes on: what it was to get
            has happened, but it will never see it.
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

    async def come(self) -> None:
        """Return at this instant, for a timed point."""
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.seconds:
            await asyncio.sleep(self.seconds)


CancelPoint.TIMED = (
    *(CancelPoint(turns=turns) for turns in (*range(8), 12, 20)),
    *(CancelPoint(turns=1, seconds=seconds) for seconds in (0.0005, 0.001, 0.002, 0.005, 0.012, 0.03)),
)
CancelPoint.ALL = (*CancelPoint.TIMED, *(CancelPoint(wakeups=wakeups) for wakeups in range(1, 9)))


async def cancelled_at(point: CancelPoint, call: Coroutine[Any, Any, _T], *, within: float) -> _T | None:
    """Start `call` and cancel it at `point`: what it returned if it was quicker, else None."""
    if point.wakeups:
        task = asyncio.create_task(_cancelled_when_woken(call, point.wakeups))
    else:
        task = asyncio.create_task(call)
        await point.come()
        task.cancel()
    await asyncio.wait({task}, timeout=within)
    assert task.done(), f"cancelled {point}, the call goes on {within} s later"
    return None if task.cancelled() else task.result()


async def _cancelled_when_woken(call: Coroutine[Any, Any, _T], wakeups: int) -> _T:
    return await _CancelledWhenWoken(call, wakeups)


class _CancelledWhenWoken(Generic[_T]):
    """Drives a coroutine and throws the cancellation in where it would otherwise have gone on."""

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
