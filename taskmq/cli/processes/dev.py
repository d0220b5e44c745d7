"""`taskmq dev`."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce, start_logging
from taskmq.cli.processes.worker import banner, watched
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor
from taskmq.worker.child_protocol import ChildSpec
from taskmq.worker.config import WorkerConfig

__all__ = ["dev"]

_STORE: Final = "sqlite:///.taskmq/jobs.db"
_PORT: Final = 8787


def dev(target: str | None = None, /, *, processes: int = 1, port: int | None = None) -> int:
    """Embedded broker and job store, reloading worker, beat, scheduler and dashboard; for one's own machine.

    Other commands find the app and its job store by the two variables that it prints. What jobs of the store log and
    print is kept with them. The dashboard needs taskmq[server]; it serves this machine only, without a sign-in.

    Parameters
    ----------
    target
        MODULE:ATTRIBUTE of the app, or a module with exactly one app.
    processes
        How many worker processes.
    port
        Where the dashboard is. Default: 8787, or any that is free where that is taken.
    """
    options = current_globals()
    start_logging()
    name = target_of(target)
    if processes < 1:
        raise InvalidOption("--processes: at least 1")
    order = ChildSpec(
        target=name,
        config=WorkerConfig(grace=5.0, capture_logs="info", capture_output=True),
        url=options.url,
        state=options.state,
        store=options.store,
        default_store=_STORE,
        log_level=options.log_level,
    )
    try:
        folders = watched()
    except UnsupportedFeature:
        announce("not reloading on changes: pip install 'taskmq[watch]', and start again")
        folders = ()

    if options.store is None and "TASKMQ_STORE" not in os.environ:
        # Ignored by an app that names a store itself.
        announce(f"for other commands, unless the app names a store: export TASKMQ_APP={name} TASKMQ_STORE={_STORE}")
    supervision = SupervisorConfig(processes=processes, watch=folders)

    async def run() -> int:
        async with (
            _beside("beat", "--lifeline", "--default-store", _STORE, name),
            _beside("scheduler", "--lifeline", "--default-store", _STORE, name),
            _dashboard(name, _port() if port is None else port),
        ):
            return await Supervisor(order, supervision, on_ready=banner).run()

    # SQLite makes a file, and no folder.
    Path(".taskmq").mkdir(exist_ok=True)
    return asyncio.run(run())


def _dashboard(name: str, port: int) -> contextlib.AbstractAsyncContextManager[None]:
    if any(find_spec(module) is None for module in ("litestar", "uvicorn", "argon2", "jsonschema_rs")):
        announce("no dashboard: pip install 'taskmq[server]', and start again")
        return contextlib.nullcontext()
    return _beside(
        "server", "--development", "--lifeline", "--default-store", _STORE, "--port", str(port), "--rate", "0", name
    )


def _port() -> int:
    """The usual port; 0, which means any, where it is taken."""
    try:
        socket.create_server(("127.0.0.1", _PORT)).close()
    except OSError:
        return 0
    return _PORT


@contextlib.asynccontextmanager
async def _beside(*words: str) -> AsyncGenerator[None]:
    """A command that runs meanwhile. Its standard input ends when this process does, also by a kill."""
    process = await asyncio.create_subprocess_exec(
        *_command(), *words, start_new_session=True, stdin=asyncio.subprocess.PIPE
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _command() -> list[str]:
    options = current_globals()
    command = [sys.executable, "-m", "taskmq"]
    if options.log_level >= logging.ERROR:
        command.append("--quiet")
    for flag, value in (("--url", options.url), ("--state", options.state), ("--store", options.store)):
        command += [flag, value] if value else []
    return command
