"""Replicas of beat, and workers, on a clock that the test advances."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from taskmq import TaskMQ
from taskmq.beat import Beat
from taskmq.model.envelope import decode_envelope
from taskmq.run.facts import SCHEDULED_FOR
from taskmq.testing import FakeClock
from tests.unit.worker.staged import Points, StagedApp, open_staged, settle_loop
from tests.virtual_time import run

START = 1_700_000_000_000


@dataclass
class Stage:
    """Replicas of one app on one broker and state."""

    app: StagedApp
    stack: AsyncExitStack
    define: Callable[[TaskMQ], None]
    apps: list[StagedApp] = field(default_factory=list[StagedApp])
    beats: list[Beat] = field(default_factory=list[Beat])

    @property
    def clock(self) -> FakeClock:
        return self.app.fake_clock

    async def start(
        self,
        *,
        clock: FakeClock | None = None,
        points: Points | None = None,
        define: Callable[[TaskMQ], None] | None = None,
    ) -> Beat:
        """Start one more replica."""
        app = self.twin(clock=clock, points=points, define=define)
        beat = Beat(app)
        self.beats.append(beat)
        await self.stack.enter_async_context(running(beat))
        await settle_loop()
        await settle_loop()
        return beat

    def twin(
        self,
        *,
        clock: FakeClock | None = None,
        points: Points | None = None,
        define: Callable[[TaskMQ], None] | None = None,
    ) -> StagedApp:
        """Build the app again, as in another process."""
        app = self.app.twin(clock)
        app.points = points or Points()
        (define or self.define)(app)
        self.apps.append(app)
        self.stack.push_async_callback(app.aclose)
        return app

    async def advance(self, seconds: float, *clocks: FakeClock) -> None:
        for clock in clocks or (self.clock,):
            clock.advance(seconds)
        await settle_loop()
        await settle_loop()

    async def emitted_instants(self, queue: str = "work") -> list[int]:
        """Return the nominal instants of the queued jobs in order, in seconds since the start."""
        found = []
        for delivery in await self.app.messages(queue):
            meta = decode_envelope(delivery.body).meta or {}
            found.append((int(meta[SCHEDULED_FOR]) - START) // 1000)
        return found


@asynccontextmanager
async def running(beat: Beat) -> AsyncIterator[None]:
    """Run the beat during the block; it must end in order."""
    task = asyncio.create_task(beat.run())
    try:
        yield
    finally:
        beat.stop()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()


def play(test: Callable[[Stage], Coroutine[Any, Any, None]], define: Callable[[TaskMQ], None]) -> None:
    """Run a test; no asyncio task may be left afterwards."""

    async def main() -> None:
        with open_staged() as app:
            # Declare the queue so that it can be inspected.
            await app.put(b"{}")
            await app.sessions.current().broker.purge("work")
            async with AsyncExitStack() as stack:
                await test(Stage(app, stack, define))
            await app.aclose()
        await settle_loop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    run(main())
