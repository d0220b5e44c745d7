"""Parts shared by the services of the command line: health endpoint and stop signals."""

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


def health_of(
    service: "Beat | Scheduler | ServerApplication", address: str | None
) -> AbstractAsyncContextManager[object]:
    """Serve the service's health at an address, if one is given."""
    if address is None:
        return nullcontext()
    health = Health(
        # If it answers, it is live.
        silent=list,
        not_ready=service.not_ready,
        status=service.status,
        open_metrics=lambda: open_metrics(service.snapshot),
    )
    return serving(parse_address(address), health)


def stop_on_signals(stop: Callable[[], None], *, lifeline: bool) -> None:
    """Stop on SIGTERM, SIGINT or SIGHUP, and with a lifeline when standard input closes; needs a running loop.

    An ignored SIGHUP, as under `nohup`, stays ignored.
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
