"""`taskmq dev`."""

import asyncio
import contextlib
import logging
import signal
import sys

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.cli.processes.worker import banner, watched
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor
from taskmq.worker.child_protocol import ChildSpec
from taskmq.worker.config import WorkerConfig

__all__ = ["dev"]


def dev(target: str | None = None, /, *, processes: int = 1) -> int:
    """Embedded broker, reloading worker and beat in one process tree; for a machine of one's own.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    processes
        How many worker processes.
    """
    options = current_globals()
    start_logging()
    name = target_of(target)
    if processes < 1:
        raise InvalidOption("--processes: at least 1")
    order = ChildSpec(
        target=name,
        config=WorkerConfig(grace=5.0),
        url=options.url,
        state=options.state,
        log_level=options.log_level,
    )
    try:
        folders = watched()
    except UnsupportedFeature:
        announce("not reloading on changes: pip install 'taskmq[watch]', and start again")
        folders = ()

    supervision = SupervisorConfig(processes=processes, watch=folders)

    async def run() -> int:
        # Its standard input ends when this process does, also by a kill.
        beat = await asyncio.create_subprocess_exec(
            *_beat_command(name), start_new_session=True, stdin=asyncio.subprocess.PIPE
        )
        try:
            return await Supervisor(order, supervision, on_ready=banner).run()
        finally:
            with contextlib.suppress(ProcessLookupError):
                beat.send_signal(signal.SIGTERM)
            await beat.wait()

    return asyncio.run(run())


def _beat_command(target: str) -> list[str]:
    options = current_globals()
    command = [sys.executable, "-m", "taskmq"]
    if options.log_level >= logging.ERROR:
        command.append("--quiet")
    for flag, value in (("--url", options.url), ("--state", options.state)):
        command += [flag, value] if value else []
    return [*command, "beat", "--lifeline", target]
