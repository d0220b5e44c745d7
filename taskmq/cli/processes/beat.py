"""`taskmq beat`."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.load_app import load_app

__all__ = ["beat"]


def beat(
    target: str | None = None, /, *, lifeline: Annotated[bool, Parameter(show=False, negative="")] = False
) -> int:
    """Emit an app's schedules until stopped; any number may run.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    lifeline
        Stop when standard input ends: whoever holds its other end is gone, however that went.
    """
    options = current_globals()
    start_logging()
    app, _ = load_app(target_of(target))
    app.sessions.configure(url=options.url, state=options.state, name="beat")

    async def run() -> None:
        service = Beat(app)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        if lifeline:
            _stop_at_the_end_of_input(service.stop)
        reactions = f", {len(app.reactions)} reactions" if app.reactions else ""
        announce(f"taskmq beat: {len(app.schedules)} schedules{reactions}")
        await service.run()

    asyncio.run(run())
    return 0


def _stop_at_the_end_of_input(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, readable)
