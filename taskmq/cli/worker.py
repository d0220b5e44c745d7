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
    weights: str = "16:4:1",
    strict: Annotated[bool, Parameter(negative="")] = False,
    max_starve: str = "30s",
    max_starts: int = WorkerConfig().max_starts,
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
    weights
        How many jobs of the priority classes high, default and low start in a round, while all of them wait.
    strict
        Start nothing of a class while a higher one waits; lower ones may starve.
    max_starve
        A class that has waited so long gets a turn out of order; not with --strict.
    max_starts
        Starts of a job whose worker ends before it does, until it is dead: at least 2, or 0 for no limit.
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
        weights=_weights(weights),
        strict=strict,
        max_starve=parse_duration(max_starve, what="max_starve").total_seconds(),
        max_starts=max_starts,
        name=name,
    )
    count = _first(processes, settings.processes, 1)
    if count < 1 or config.concurrency < 1 or config.effective_prefetch < 1:
        raise InvalidOption("--processes, --concurrency and --prefetch: at least 1")
    if config.max_starts < 0 or config.max_starts == 1:
        raise InvalidOption("--max-starts: at least 2, or 0 for no limit")
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


def _weights(text: str) -> tuple[int, int, int]:
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise InvalidOption(f"--weights {text!r}: three numbers from 1 on, for high, default and low, such as 16:4:1")
    high, default, low = map(int, parts)
    return high, default, low


def _first(given: int | None, configured: int | None, default: int) -> int:
    return next((value for value in (given, configured) if value is not None), default)


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
