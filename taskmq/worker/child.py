"""A worker process: `python -m taskmq.worker.child STATUS_FD`, started by the supervisor.

The first line of its standard input is its spec: URLs contain passwords, and everyone can read command lines. It
drains when its standard input ends, because then the supervisor is gone. It writes JSON lines to the status pipe: one
when it is ready, then its status (`taskmq.worker.child_protocol`).
"""

import gc

if __name__ == "__main__":
    # The imported modules stay: the collector would scan them again and again, and several times at the exit.
    gc.disable()

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.errors import AppNotFound, TaskMQError
from taskmq.load_app import load_app
from taskmq.model.telemetry.plain_text import escape_line
from taskmq.run.console_log import begin_console_log, keep_console_log
from taskmq.run.forks import end_forks
from taskmq.run.log_fields import install_job_fields
from taskmq.run.signal_handlers import contain_signal_handlers
from taskmq.worker.child_protocol import EXIT_DISMISSED, EXIT_USAGE, ChildSpec
from taskmq.worker.host.event_loop import loop_factory
from taskmq.worker.reporter import Reporter
from taskmq.worker.worker import Worker

_EXIT_TIMEOUT: Final = 5.0


def main(status: int) -> int:
    """Run one worker until it is stopped; return the exit code."""
    # Tasks, and processes that they start, get an empty standard input: this one is not theirs to read.
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    order = _read_spec(lifeline)
    # Every handler's records carry their job.
    install_job_fields()
    begin_console_log(order.log_level)
    try:
        app, target = _load(order.target)
        keep_console_log()
        contain_signal_handlers()
        app.sessions.configure(
            url=order.url,
            state=order.state,
            store=order.store or (order.default_store if app.sessions.store_url is None else None),
            name=f"worker {order.target} {os.uname().nodename}:{os.getpid()}",
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            worker = runner.run(_serve(app, target, order, lifeline, status))
            code = EXIT_DISMISSED if worker.is_dismissed else 0
            _leave_soon(worker, code)
    except TaskMQError as error:
        sys.stderr.write(f"taskmq worker: {escape_line(str(error))}\n")
        return EXIT_USAGE
    return code


def _read_spec(lifeline: int) -> ChildSpec:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(lifeline, 1 << 16)
        if not part:
            raise SystemExit(EXIT_USAGE)
        line += part
    return msgspec.json.decode(line, type=ChildSpec)


def _load(target: str) -> tuple[TaskMQ, str]:
    try:
        return load_app(target)
    except TaskMQError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise AppNotFound(f"{target!r} cannot be imported: {type(error).__name__}: {error}") from error


def _leave_soon(worker: Worker, code: int) -> None:
    """End this process although something in it may still run; everything is settled."""
    if worker.left_behind:
        logging.getLogger("taskmq.worker").error("%d tasks did not react to cancellation", worker.left_behind)
        # The runner would wait for them forever; their jobs are back in their queues.
        _exit(code)
    # It would also wait for threads that coroutines started.
    timer = threading.Timer(_EXIT_TIMEOUT, _exit, (code,))
    timer.daemon = True
    timer.start()


def _exit(code: int) -> None:
    logging.shutdown()
    os._exit(code)


async def _serve(app: TaskMQ, target: str, order: ChildSpec, lifeline: int, status: int) -> Worker:
    worker = Worker(app, order.config, target=target)
    loop = asyncio.get_running_loop()
    end_forks(loop)
    signals = _Signals(worker)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.receive)
    orphaned = asyncio.create_task(_supervisor_gone(lifeline, worker.drain))
    reporter = Reporter(worker, app, target=order.target, status=status, looks=order.looks)
    reporting = asyncio.create_task(reporter.run())
    reporting.add_done_callback(_say_failure)
    try:
        await worker.run()
    finally:
        signals.say_drained()
        for task in (orphaned, reporting):
            task.cancel()
        await asyncio.gather(orphaned, reporting, return_exceptions=True)
    return worker


def _say_failure(reporting: "asyncio.Task[None]") -> None:
    if not reporting.cancelled() and (error := reporting.exception()) is not None:
        logging.getLogger("taskmq.worker").critical("reports to the supervisor have ended", exc_info=error)


class _Signals:
    """The first signal drains, the second returns everything immediately, the third ends the process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._count = 0
        self._first = 0.0

    def receive(self) -> None:
        self._count += 1
        if self._count == 1:
            self._first = time.monotonic()
            self._worker.drain()
        elif self._count == 2:
            self._worker.requeue_now()
        else:
            os._exit(130)

    def say_drained(self) -> None:
        """Log the time since the first signal, if there was one."""
        if self._count:
            logging.getLogger("taskmq.worker").info("drained in %.2f s", time.monotonic() - self._first)


async def _supervisor_gone(lifeline: int, drain: Callable[[], None]) -> None:
    """Call `drain` when the lifeline ends."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(lifeline, 1024):
            loop.remove_reader(lifeline)
            ended.set()

    loop.add_reader(lifeline, readable)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(lifeline)
    logging.getLogger("taskmq.worker").warning("the supervisor is gone: draining")
    drain()


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    sys.exit(main(int(sys.argv[1])))
