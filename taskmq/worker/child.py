"""One worker process: `python -m taskmq.worker.child ORDER STATUS_FD`, started by the supervisor.

Drains when its standard input ends, which is when the supervisor is gone. Says on the status pipe, in lines
of JSON, that it is ready.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from taskmq.errors import TaskMQError
from taskmq.loading import load_app
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker

__all__ = ["Order", "Ready", "loop_factory", "main"]

EXIT_USAGE = 2


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


def main(order: Order, status: int) -> int:
    """Run one worker until it is stopped; the exit code."""
    logging.basicConfig(
        level=order.log_level,
        format="%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        app, target = load_app(order.target)
        app.configure(
            url=order.url, state=order.state, name=f"worker {order.target} {os.uname().nodename}:{os.getpid()}"
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            worker = runner.run(_serve(app, target, order, status))
            if worker.left_behind:
                logging.getLogger("taskmq.worker").error("%d tasks ignore being cancelled", worker.left_behind)
                logging.shutdown()
                # The runner would wait for them for ever; their jobs are back in their queues.
                os._exit(0)
    except TaskMQError as error:
        sys.stderr.write(f"taskmq worker: {error}\n")
        return EXIT_USAGE
    return 0


async def _serve(app: Any, target: str, order: Order, status: int) -> Worker:
    worker = Worker(app, order.config, target=target)
    loop = asyncio.get_running_loop()
    signals = _Signals(worker)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.receive)
    orphaned = asyncio.create_task(_supervisor_gone(worker.drain))
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


async def _supervisor_gone(drain: Callable[[], None]) -> None:
    """Call `drain` at the end of standard input."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            ended.set()

    loop.add_reader(0, readable)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(0)
    logging.getLogger("taskmq.worker").warning("the supervisor is gone: draining")
    drain()


async def _tell_ready(worker: Worker, app: Any, order: Order, status: int) -> None:
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
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Order), int(sys.argv[2])))
