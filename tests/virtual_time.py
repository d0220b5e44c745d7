"""A loop whose time jumps to the next timer when nothing else is left to do, so that no test waits."""

import asyncio
import gc
import selectors
from collections.abc import Coroutine
from typing import Any

__all__ = ["run"]


_TURN = 1e-9


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a timer, says how long it would have waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0 if timeout else timeout)
        if timeout and not events:
            self.waited += timeout
        # A loop takes a timer for due that is a nanosecond ahead: who looks at the clock then and waits for the rest
        # would do so for ever if no turn took any time.
        self.waited += _TURN
        return events


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time passes by waiting alone, however long the work takes."""

    def __init__(self) -> None:
        self._clock = _Selector()
        self._started = super().time()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._started + self._clock.waited

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for its threads. Since Python 3.12 a runner gives them 300 seconds, which are over at once here."""
        del timeout
        await super().shutdown_default_executor()


def run(main: Coroutine[Any, Any, None], *, within: float = 100_000) -> None:
    """Run a test's coroutine; nothing may have gone to the loop's exception handler.

    Only for tests without threads and processes: the loop does not wait for anything outside of it.
    """
    complaints: list[str] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(within):
            await main
        # What only the collector finds, such as an exception that nobody looked at, belongs to this test.
        gc.collect(1)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        runner.run(bounded())
    assert not complaints, complaints
