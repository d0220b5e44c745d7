"""`taskmq beat`."""

import asyncio
import signal

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.loading import load_app

__all__ = ["beat"]


def beat(target: str | None = None, /) -> int:
    """Emit an app's schedules until stopped; any number may run.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    """
    options = current_globals()
    start_logging()
    app, _ = load_app(target_of(target))
    app.configure(url=options.url, state=options.state, name="beat")

    async def run() -> None:
        service = Beat(app)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        announce(f"taskmq beat: {len(app.schedules)} schedules")
        await service.run()

    asyncio.run(run())
    return 0
