"""`taskmq beat`."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.serve import health_of, stop_on_signals
from taskmq.errors import UnsupportedFeature
from taskmq.load_app import load_app
from taskmq.run.console_log import begin_console_log, keep_console_log


def beat(
    target: str | None = None,
    /,
    *,
    health_port: str | None = None,
    default_store: Annotated[str | None, Parameter(show=False)] = None,
    lifeline: Annotated[bool, Parameter(show=False, negative="")] = False,
) -> int:
    """Emit an app's schedules until stopped. Run any number of beats; they share the work.

    For an app with a job store, `taskmq scheduler` emits the schedules: a beat then only watches what reactions wait
    for, and refuses to start if there are none.

    Args:
        target: MODULE:ATTRIBUTE of the app, or a module with exactly one app.
        health_port: Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket path.
        default_store: Store for an app that names none; with it, a beat without work is not an error.
        lifeline: Stop when standard input closes, because the parent process is gone.
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
        stop_on_signals(service.stop, lifeline=lifeline)
        reactions = f", {len(app.reactions)} reactions" if app.reactions else ""
        schedules = 0 if app.sessions.store_url else len(app.schedules)
        announce(f"taskmq beat: {schedules} schedules{reactions}")
        async with health_of(service, health_port):
            await service.run()

    asyncio.run(run())
    return 0
