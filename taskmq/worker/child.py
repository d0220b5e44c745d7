"""One worker process: `python -m taskmq.worker.child STATUS_FD`, started by the supervisor.

Its order is the first line of its standard input: URLs have passwords, and everybody can read command lines. It
drains when its standard input ends, which is when the supervisor is gone. Says on the status pipe, in lines of
JSON, that it is ready.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.errors import AppNotFound, TaskMQError
from taskmq.loading import load_app
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker

__all__ = ["Order", "Ready", "loop_factory", "main"]

EXIT_USAGE: Final = 2
_EXIT_TIMEOUT: Final = 5.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor wants."""

    target: str
    config: WorkerConfig
    url: str | None = None
    state: str | None = None
    log_level: int = logging.INFO


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says once it consumes."""

    app: str
    broker: str
    queues: list[str]
    tasks: list[str]


def main(status: int) -> int:
    """Run one worker until it is stopped; the exit code."""
    # Tasks, and what they start, find an empty standard input: this one is not theirs to read.
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    order = _read_order(lifeline)
    logging.basicConfig(
        level=order.log_level,
        format="%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        app, target = _load(order.target)
        app.configure(
            url=order.url, state=order.state, name=f"worker {order.target} {os.uname().nodename}:{os.getpid()}"
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            worker = runner.run(_serve(app, target, order, lifeline, status))
            _leave_soon(worker)
    except TaskMQError as error:
        sys.stderr.write(f"taskmq worker: {error}\n")
        return EXIT_USAGE
    return 0


def _read_order(lifeline: int) -> Order:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(lifeline, 1 << 16)
        if not part:
            raise SystemExit(EXIT_USAGE)
        line += part
    return msgspec.json.decode(line, type=Order)


def _load(target: str) -> tuple[TaskMQ, str]:
    try:
        return load_app(target)
    except TaskMQError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise AppNotFound(f"{target!r} cannot be imported: {type(error).__name__}: {error}") from error


def _leave_soon(worker: Worker) -> None:
    """Everything is settled: end this process although something in it may go on."""
    if worker.left_behind:
        logging.getLogger("taskmq.worker").error("%d tasks ignore being cancelled", worker.left_behind)
        # The runner would wait for them for ever; their jobs are back in their queues.
        _exit()
    # And it would wait for threads that coroutines have started.
    timer = threading.Timer(_EXIT_TIMEOUT, _exit)
    timer.daemon = True
    timer.start()


def _exit() -> None:
    logging.shutdown()
    os._exit(0)


async def _serve(app: TaskMQ, target: str, order: Order, lifeline: int, status: int) -> Worker:
    worker = Worker(app, order.config, target=target)
    loop = asyncio.get_running_loop()
    signals = _Signals(worker)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.receive)
    orphaned = asyncio.create_task(_supervisor_gone(lifeline, worker.drain))
    telling = asyncio.create_task(_tell_ready(worker, app, order, status))
    try:
        await worker.run()
    finally:
        for task in (orphaned, telling):
            task.cancel()
        await asyncio.gather(orphaned, telling, return_exceptions=True)
    return worker


class _Signals:
    """The first one drains, the second gives everything back now, the third ends the process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._count = 0

    def receive(self) -> None:
        self._count += 1
        if self._count == 1:
            self._worker.drain()
        elif self._count == 2:
            self._worker.requeue_now()
        else:
            os._exit(130)


async def _supervisor_gone(lifeline: int, drain: Callable[[], None]) -> None:
    """Call `drain` at the lifeline's end."""
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


async def _tell_ready(worker: Worker, app: TaskMQ, order: Order, status: int) -> None:
    await worker.is_ready.wait()
    ready = Ready(
        app=order.target,
        broker=app.session().broker.address,
        queues=[queue.name for queue in worker.queues],
        tasks=sorted(app.tasks),
    )
    os.write(status, msgspec.json.encode(ready) + b"\n")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Uvloop's loop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
