"""`taskmq scheduler`."""

import asyncio
import gc
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.serve import health_of, stop_on_signals
from taskmq.load_app import load_app
from taskmq.operations.retention import KeepRule
from taskmq.run.console_log import begin_console_log, keep_console_log
from taskmq.scheduler import AlertSettings, Scheduler
from taskmq.worker.host.event_loop import loop_factory


def scheduler(
    target: str | None = None,
    /,
    *,
    health_port: str | None = None,
    drain: bool = False,
    history: bool = True,
    alerts: bool = True,
    archive: str | None = None,
    keep: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    default_store: Annotated[str | None, Parameter(show=False)] = None,
    lifeline: Annotated[bool, Parameter(show=False, negative="")] = False,
) -> int:
    """Dispatch the jobs of an app's store until stopped. Run any number of schedulers; they share the work.

    Args:
        target: MODULE:ATTRIBUTE of the app, or a module with exactly one app.
        health_port: Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket path.
        drain: On a stop signal, dispatch nothing more and wait until everything in flight has been reported.
            A second signal stops at once.
        history: Have workers report their runs, count them by the minute, and store failures of plain jobs.
        alerts: Evaluate alert rules and notify people;
            configured by $TASKMQ_SMTP_URL, $TASKMQ_WEBHOOK_SECRET and others.
        archive: Folder to which ended jobs are archived, a file a day, before the store deletes them;
            the same for all schedulers.
        keep: How long to keep ended jobs, instead of 30 days; may be repeated: AGE for all, such as 90d;
            AGE FILTER or last:COUNT FILTER for jobs that match a filter of `job list`. The same for all schedulers.
        default_store: Store for an app that names none.
        lifeline: Stop when standard input closes, because the parent process is gone.
    """
    options = current_globals()
    begin_console_log(options.log_level)
    app, _ = load_app(target_of(target))
    keep_console_log()
    store = options.store or (default_store if app.sessions.store_url is None else None)
    app.sessions.configure(url=options.url, state=options.state, store=store, name="scheduler")

    rules = [KeepRule.read(text) for text in keep]
    told = AlertSettings.read(os.environ) if alerts else None

    async def run() -> None:
        service = Scheduler(
            app,
            drains=drain,
            counts_runs=history,
            alerts=told,
            archive=None if archive is None else Path(archive),
            keep=rules,
        )
        stop_on_signals(service.stop, lifeline=lifeline)
        async with health_of(service, health_port):
            address = app.sessions.store().address
            announce(
                f"taskmq scheduler: app {app.name!r}, store {address}, broker {app.sessions.current().broker.address}"
            )
            # Exclude imported modules from collection: walking them all delays dispatch by some 40 ms.
            gc.freeze()
            await service.run()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
    return 0
