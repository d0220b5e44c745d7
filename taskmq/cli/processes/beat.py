"""`taskmq beat`."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.serve import health_of, stop_when_told
from taskmq.errors import UnsupportedFeature
from taskmq.load_app import load_app
from taskmq.run.console_log import begin_console_log, keep_console_log

__all__ = ["beat"]


def beat(
    target: str | None = None,
    /,
    *,
    health_port: str | None = None,
    default_store: Annotated[str | None, Parameter(show=False)] = None,
    lifeline: Annotated[bool, Parameter(show=False, negative="")] = False,
) -> int:
    """Emit an app's schedules until stopped; any number may run.

    Schedules of an app with a job store are `taskmq scheduler`'s: there this only sees what reactions wait for, and
    refuses to start where there are none.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    health_port
        Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket's path.
    default_store
        The store of an app that names none; with it, a beat that has nothing to do is no error.
    lifeline
        Stop when standard input ends, because the process at its other end is gone.
    """
    options = current_globals()
    begin_console_log(options.log_level)
    app, _ = load_app(target_of(target))
    keep_console_log()
    store = options.store or (default_store if app.sessions.store_url is None else None)
    app.sessions.configure(url=options.url, state=options.state, store=store, name="beat")
    try:
        service = Beat(app)
    except UnsupportedFeature:
        if default_store is None:
            raise
        return 0

    async def run() -> None:
        stop_when_told(service.stop, lifeline=lifeline)
        reactions = f", {len(app.reactions)} reactions" if app.reactions else ""
        schedules = 0 if app.sessions.store_url else len(app.schedules)
        announce(f"taskmq beat: {schedules} schedules{reactions}")
        async with health_of(service, health_port):
            await service.run()

    asyncio.run(run())
    return 0
