"""`taskmq worker`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.duration import parse_duration
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.worker.child import Order, Ready, loop_factory
from taskmq.worker.config import DEFAULT_CONCURRENCY, WorkerConfig
from taskmq.worker.supervisor import Supervisor

__all__ = ["banner", "watched", "worker"]


def worker(
    target: str | None = None,
    /,
    *,
    queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None,
    concurrency: Annotated[int | None, Parameter(name=["--concurrency", "-c"])] = None,
    processes: int | None = None,
    prefetch: int | None = None,
    burst: Annotated[bool, Parameter(negative="")] = False,
    grace: str | None = None,
    watch: Annotated[bool, Parameter(negative="")] = False,
    name: str = "",
) -> int:
    """Run the tasks of an app's queues.

    The first SIGTERM or Ctrl-C drains, the second gives back what runs, the third kills.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    queues
        Queues, separated by commas; default: those of all tasks.
    concurrency
        How many tasks run at a time in one process.
    processes
        How many worker processes.
    prefetch
        Unsettled deliveries per queue; default: twice the concurrency.
    burst
        Exit with 0 once the queues stay empty.
    grace
        How long running tasks get when the worker stops, such as 30s.
    watch
        Replace the processes when Python files below this folder change and the new code starts.
    name
        Shown at the broker and in results.
    """
    from taskmq.settings import load_settings

    options = current_globals()
    start_logging()
    settings = load_settings(_environment(), Path.cwd())
    config = WorkerConfig(
        queues=tuple(part.strip() for part in queues.split(",") if part.strip()) if queues else (),
        concurrency=_first(concurrency, settings.concurrency, DEFAULT_CONCURRENCY),
        prefetch=prefetch,
        grace=parse_duration(grace or settings.grace or "30s", what="grace").total_seconds(),
        burst=burst,
        name=name,
    )
    count = _first(processes, settings.processes, 1)
    if count < 1 or config.concurrency < 1 or config.effective_prefetch < 1:
        raise InvalidOption("--processes, --concurrency and --prefetch: at least 1")
    order = Order(
        target=target_of(target), config=config, url=options.url, state=options.state, log_level=options.log_level
    )

    async def run() -> int:
        supervisor = Supervisor(
            order,
            processes=count,
            on_ready=banner,
            watch=watched() if watch else (),
        )
        return await supervisor.run()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run())


def watched() -> tuple[Path, ...]:
    """The folders that a reloading worker watches.

    Raises:
        UnsupportedFeature: the package that does it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("watchfiles") is None:
        raise UnsupportedFeature("--watch needs an extra: pip install 'taskmq[watch]'")
    return (Path.cwd(),)


def banner(ready: Ready) -> None:
    """Say what the worker does, once it does it."""
    announce(f"taskmq worker: {ready.app} at {ready.broker}, Python {sys.version.split()[0]}")
    announce(f"  queues  {', '.join(ready.queues)}")
    announce(f"  tasks   {', '.join(ready.tasks)}")
    announce("waiting for jobs; Ctrl-C drains")


def _first(given: int | None, configured: int | None, default: int) -> int:
    return next((value for value in (given, configured) if value is not None), default)


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
