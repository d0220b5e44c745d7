"""`taskmq dev`."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from taskmq.cli.globals import current_globals, target_of
from taskmq.cli.output import announce
from taskmq.cli.processes.worker import banner, watch_folders
from taskmq.durable.task_set import TaskSet
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.run.console_log import begin_console_log
from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor
from taskmq.worker.child_protocol import ChildReady, ChildSpec
from taskmq.worker.config import WorkerConfig

_STORE: Final = "sqlite:///.taskmq/jobs.db"
_PORT: Final = 8787
_SERVER_MODULES: Final = ("litestar", "uvicorn", "argon2", "jsonschema_rs")


def dev(target: str | None = None, /, *, processes: int = 1, port: int | None = None) -> int:
    """Run broker, job store, worker, beat, scheduler and dashboard on one machine, and reload on changes.

    Prints two variables with which other commands find the app and its job store. Logs and output of stored jobs are
    captured. The dashboard needs taskmq[server]; it serves only this machine, without a sign-in.

    Args:
        target: MODULE:ATTRIBUTE of the app, or a module with exactly one app.
        processes: Number of worker processes.
        port: Port of the dashboard; 0: any free port. Default: 8787, or any free port if that is in use.
    """
    options = current_globals()
    begin_console_log(options.log_level)
    name = target_of(target)
    if processes < 1:
        raise InvalidOption("--processes must be at least 1")
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
        folders = watch_folders()
    except UnsupportedFeature:
        announce("not reloading on changes: run pip install 'taskmq[watch]' and restart")
        folders = ()

    if options.store is None and "TASKMQ_STORE" not in os.environ:
        # Ignored by an app that names its own store.
        announce(f"for other commands, unless the app names a store: export TASKMQ_APP={name} TASKMQ_STORE={_STORE}")
    supervision = SupervisorConfig(processes=processes, watch=folders)
    common = ("--lifeline", "--default-store", _STORE, name)
    commands: list[tuple[str, ...]] = [("beat", *common), ("scheduler", *common)]
    if all(map(find_spec, _SERVER_MODULES)):
        port = _free_port(_PORT) if port is None else port or _free_port()
        commands.append(("server", "--development", "--rate", "0", "--port", str(port), *common))
    else:
        announce("no dashboard: run pip install 'taskmq[server]' and restart")

    async def run() -> int:
        code_is_new = asyncio.Event()

        def ready(worker: ChildReady) -> None:
            banner(worker)
            code_is_new.set()

        beside = TaskSet("dev", failure="beat, scheduler and dashboard are no longer kept running")
        beside.start(_keep_running(commands, code_is_new))
        try:
            return await Supervisor(order, supervision, on_ready=ready, on_restart=code_is_new.set).run()
        finally:
            await beside.aclose()

    # SQLite creates the file, but not its folder.
    Path(".taskmq").mkdir(mode=0o700, exist_ok=True)
    return asyncio.run(run())


def _free_port(*wanted: int) -> int:
    """Return the first free port of the preferred ones, else any. A fixed number survives restarts of the server."""
    for port in (*wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as found:
            number: int = found.getsockname()[1]
            return number
    raise OSError("127.0.0.1 has no free port")


async def _keep_running(commands: Sequence[tuple[str, ...]], code_is_new: asyncio.Event) -> None:
    """Keep the commands running with the worker's code; they start once the worker has proved that it starts."""
    while True:
        await code_is_new.wait()
        async with contextlib.AsyncExitStack() as running:
            code_is_new.clear()
            for command in commands:
                await running.enter_async_context(_run(*command))
            await code_is_new.wait()


@contextlib.asynccontextmanager
async def _run(*words: str) -> AsyncGenerator[None]:
    """Run a command meanwhile. Its standard input closes when this process ends, even if killed."""
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
