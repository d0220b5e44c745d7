"""`taskmq beat`."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated

from cyclopts import Parameter

from taskmq.beat import Beat
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.client.plugins import open_metrics
from taskmq.durable.health import Health, parse_address, serving
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
        async with _health_of(service, health_port):
            await service.run()

    asyncio.run(run())
    return 0


def _health_of(service: Beat, port: str | None) -> AbstractAsyncContextManager[object]:
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


def _stop_at_the_end_of_input(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, readable)
