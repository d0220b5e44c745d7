"""What the services of the command line have in common: how they are looked at, and how they end."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from taskmq.client.plugins import open_metrics
from taskmq.durable.health import Health, parse_address, serving

if TYPE_CHECKING:
    from taskmq.beat import Beat
    from taskmq.scheduler import Scheduler
    from taskmq.server import ServerApplication

__all__ = ["health_of", "stop_when_told"]


def health_of(
    service: "Beat | Scheduler | ServerApplication", address: str | None
) -> AbstractAsyncContextManager[object]:
    """Serve its health at that address, where there is one."""
    if address is None:
        return nullcontext()
    health = Health(
        # What answers is live.
        silent=list,
        not_ready=service.not_ready,
        status=service.status,
        open_metrics=lambda: open_metrics(service.snapshot),
    )
    return serving(parse_address(address), health)


def stop_when_told(stop: Callable[[], None], *, lifeline: bool) -> None:
    """Stop at SIGTERM, SIGINT and SIGHUP; with a lifeline also when standard input ends. For the running loop.

    A SIGHUP that is ignored, as `nohup` has it, stays ignored.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)

    def readable() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stop()

    if lifeline:
        loop.add_reader(0, readable)
