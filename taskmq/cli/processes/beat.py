"""`taskmq beat`."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.cli.processes.serve import health_of, stop_when_told
from taskmq.load_app import load_app

__all__ = ["beat"]


def beat(
    target: str | None = None,
    /,
    *,
    health_port: str | None = None,
    lifeline: Annotated[bool, Parameter(show=False, negative="")] = False,
) -> int:
    """Emit an app's schedules until stopped; any number may run.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    health_port
        Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket's path.
    lifeline
        Stop when standard input ends: whoever holds its other end is gone, however that went.
    """
    options = current_globals()
    start_logging()
    app, _ = load_app(target_of(target))
    app.sessions.configure(url=options.url, state=options.state, store=options.store, name="beat")

    async def run() -> None:
        service = Beat(app)
        stop_when_told(service.stop, lifeline=lifeline)
        reactions = f", {len(app.reactions)} reactions" if app.reactions else ""
        announce(f"taskmq beat: {len(app.schedules)} schedules{reactions}")
        async with health_of(service, health_port):
            await service.run()

    asyncio.run(run())
    return 0
