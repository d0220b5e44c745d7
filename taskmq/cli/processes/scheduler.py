"""`taskmq scheduler`."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager, nullcontext

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.client.plugins import open_metrics
from taskmq.durable.health import Health, parse_address, serving
from taskmq.load_app import load_app
from taskmq.scheduler import Scheduler

__all__ = ["scheduler"]


def scheduler(target: str | None = None, /, *, health_port: str | None = None, drain: bool = False) -> int:
    """Dispatch the jobs of an app's store until stopped; any number may run.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    health_port
        Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket's path.
    drain
        When told to stop, dispatch nothing more and wait until everything in flight was reported. A second signal
        stops at once.
    """
    options = current_globals()
    start_logging()
    app, _ = load_app(target_of(target))
    app.sessions.configure(url=options.url, state=options.state, store=options.store, name="scheduler")

    async def run() -> None:
        service = Scheduler(app, drains=drain)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        async with _health_of(service, health_port):
            address = app.sessions.store().address
            announce(
                f"taskmq scheduler: app {app.name!r}, store {address}, broker {app.sessions.current().broker.address}"
            )
            await service.run()

    asyncio.run(run())
    return 0


def _health_of(service: Scheduler, port: str | None) -> AbstractAsyncContextManager[object]:
    if port is None:
        return nullcontext()
    health = Health(
        # What answers is live.
        silent=list,
        not_ready=service.not_ready,
        status=service.status,
        open_metrics=lambda: open_metrics(service.snapshot),
    )
    return serving(parse_address(port), health)
