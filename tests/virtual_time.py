"""A loop whose time jumps to the next timer when nothing else is left to do, so that no test waits."""

import asyncio
import gc
import selectors
from collections.abc import Coroutine
from typing import Any

_TURN = 1e-9


class _Selector(selectors.DefaultSelector):
    """A selector that reports the timeout instead of waiting for it."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0 if timeout else timeout)
        if timeout and not events:
            self.waited += timeout
        # A loop treats a timer as due a nanosecond early: code that reads the clock then and waits for the rest would
        # do so forever if no iteration took any time.
        self.waited += _TURN
        return events


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time advances only by waiting, however long the work takes."""

    def __init__(self) -> None:
        self._clock = _Selector()
        self._started = super().time()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._started + self._clock.waited

    def run_in_executor(self, *_: object) -> Any:
        """Refuse the call: timers of a test would fire before the thread has ended."""
        raise RuntimeError("virtual time does not wait for threads: mark the test with pytest.mark.real_time")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for its threads. Since Python 3.12 a runner gives them 300 seconds, which are over at once here."""
        del timeout
        await super().shutdown_default_executor()


def run(main: Coroutine[Any, Any, None], *, within: float = 100_000) -> None:
    """Run a test's coroutine; the loop's exception handler must not have been called.

    Only for tests without threads and processes: the loop does not wait for anything outside it.
    """
    complaints: list[str] = []

    async def run_with_timeout() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(within):
            await main
        # Findings of the collector, such as an unretrieved exception, belong to this test.
        gc.collect(1)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        runner.run(run_with_timeout())
    assert not complaints, complaints
