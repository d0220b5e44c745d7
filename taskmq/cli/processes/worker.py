"""`taskmq worker`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from taskmq.cli.config_options import config_values, with_config_options
from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.noun import Noun
from taskmq.cli.output import announce
from taskmq.durable.health import parse_address
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.units import parse_duration, parse_processes, parse_size
from taskmq.run.console_log import begin_console_log
from taskmq.supervisor.config import RecycleLimits, SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor
from taskmq.worker.child_protocol import ChildReady, ChildSpec
from taskmq.worker.config import WorkerConfig
from taskmq.worker.host.event_loop import loop_factory

_SHORTEST_HANG = 10.0

app = Noun(name="worker")
app.command(
    "taskmq.cli.operators.worker_control:app",
    name="control",
    help="Command running workers: status, pause, resume, drain, concurrency, log-level, stacks.",
)


@app.default
@with_config_options(WorkerConfig, unset=("concurrency", "grace"))
def worker(
    target: str | None = None,
    /,
    *,
    queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None,
    processes: str | None = None,
    watch: Annotated[bool, Parameter(negative="")] = False,
    max_jobs: int | None = None,
    max_memory: str | None = None,
    max_open_files: int | None = None,
    health_port: Annotated[str | None, Parameter(env_var="TASKMQ_HEALTH_PORT")] = None,
    liveness_timeout: str = "90s",
    kill_unresponsive: str | None = None,
    **options: Any,
) -> int:
    """Run the tasks of an app's queues.

    The first SIGTERM or Ctrl-C drains, the second requeues running jobs, the third kills. SIGHUP replaces the
    processes one by one, each once its successor consumes.

    Args:
        target: MODULE:ATTRIBUTE of the app, or a module with exactly one app.
        queues: Queues, separated by commas. images=4 limits a queue to 4 slots;
            mail*3 starts three jobs of a queue in a row while others wait. Default: the queues of all tasks.
        processes: Number of worker processes, such as 4, or a range such as 1-8 to scale with load.
            Default: $TASKMQ_PROCESSES, else 1.
        watch: Reload when Python files below this folder change and the new code starts.
        max_jobs: Replace a process after about this many jobs; its successor consumes before it drains.
        max_memory: Replace a process that uses more resident memory than this, such as 512M.
        max_open_files: Replace a process that has more file descriptors open than this.
        health_port: Serve /live, /ready, /status and /metrics at PORT of this machine, HOST:PORT, or a socket path.
        liveness_timeout: How long a process may not answer before it counts as not live.
        kill_unresponsive: Kill a process whose event loop has been blocked for this long, such as 10m;
            its jobs run elsewhere. Default: never.
    """
    from taskmq.client.settings import load_settings

    asked = current_globals()
    begin_console_log(asked.log_level)
    settings = load_settings(_environment(), Path.cwd())
    least, most = parse_processes(processes or settings.processes or "1")
    names, slots, shares = _queues(queues or "")
    # `options` holds only what was given.
    given = {"concurrency": settings.concurrency, "grace": settings.grace} | options
    config = WorkerConfig(
        queues=names,
        queue_slots=slots,
        queue_shares=shares,
        processes=most or least,
        **config_values(WorkerConfig, given),
    )
    if config.burst and most is not None:
        raise InvalidOption(f"--processes {least}-{most} --burst: with --burst the number of processes must be fixed")
    order = ChildSpec(
        target=target_of(target),
        config=config,
        url=asked.url,
        state=asked.state,
        store=asked.store,
        log_level=asked.log_level,
    )

    supervision = SupervisorConfig(
        processes=least,
        most=most,
        limits=limits_of(jobs=max_jobs, memory=max_memory, descriptors=max_open_files),
        health=parse_address(health_port) if health_port else None,
        liveness_timeout=parse_duration(liveness_timeout, what="liveness_timeout").total_seconds(),
        unresponsive_after=None if kill_unresponsive is None else _unresponsive_after(kill_unresponsive),
        watch=watch_folders() if watch else (),
    )

    async def run() -> int:
        return await Supervisor(order, supervision, on_ready=banner).run()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run())


def _unresponsive_after(text: str) -> float:
    seconds = parse_duration(text, what="kill_unresponsive").total_seconds()
    if seconds < _SHORTEST_HANG:
        # Processes report once a second, and a little later on a busy machine.
        raise InvalidOption(f"--kill-unresponsive {text}: must be at least {_SHORTEST_HANG:g} s")
    return seconds


def limits_of(*, jobs: int | None, memory: str | None, descriptors: int | None) -> RecycleLimits:
    """Return the limits at which a process is replaced.

    Raises:
        InvalidOption: a limit is less than 1.
    """
    for flag, value in (("--max-jobs", jobs), ("--max-open-files", descriptors)):
        if value is not None and value < 1:
            raise InvalidOption(f"{flag} {value}: must be at least 1")
    size = None if memory is None else parse_size(memory, what="max_memory")
    return RecycleLimits(jobs=jobs, memory=size, descriptors=descriptors)


def watch_folders() -> tuple[str, ...]:
    """Return the folders that a reloading worker watches.

    Raises:
        UnsupportedFeature: the package `watchfiles` is not installed.
    """
    from importlib.util import find_spec

    if find_spec("watchfiles") is None:
        raise UnsupportedFeature("--watch needs an extra: run pip install 'taskmq[watch]'")
    return (str(Path.cwd()),)


def banner(ready: ChildReady) -> None:
    """Print the app, broker, queues and tasks once the worker is ready."""
    announce(f"taskmq worker: {ready.app} at {ready.broker}, Python {sys.version.split()[0]}")
    announce(f"  queues  {', '.join(ready.queues)}")
    announce(f"  tasks   {', '.join(ready.tasks)}")
    announce("waiting for jobs; Ctrl-C drains")


def _queues(text: str) -> tuple[tuple[str, ...], dict[str, int], dict[str, int]]:
    """Parse the names of queues, with the slots and shares of those that give them."""
    names: list[str] = []
    slots: dict[str, int] = {}
    shares: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        rest, has_slots, most = part.rpartition("=")
        name, has_share, share = (rest if has_slots else part).rpartition("*")
        name = name if has_share else rest if has_slots else part
        names.append(name)
        if has_slots:
            slots[name] = _number(most, part)
        if has_share:
            shares[name] = _number(share, part)
    return tuple(names), slots, shares


def _number(text: str, part: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise InvalidOption(
        f"--queues {part!r}: write QUEUE, or with a share and slots QUEUE*SHARE=SLOTS, such as images*3=4"
    )


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
