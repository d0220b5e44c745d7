"""An app with a store, its scheduler, and a real worker, on a loop with virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from taskmq import Context, Ignore, Reject, Retry, RetryPolicy, Snooze, TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.stored_jobs import Jobs
from taskmq.testing import FlakyBroker
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import open_memory_broker, open_memory_state
from tests.unit.app_kit import use_session
from tests.unit.scheduler.stage import HeardBroker, Process, Stage, play_one
from tests.unit.worker.impatient import ImpatientBroker

RETRY = RetryPolicy(max_attempts=3, backoff="constant", base="10s", jitter=False)


def define(app: TaskMQ) -> None:
    """Define the tasks of the tests; one for each possible end of a run."""

    @app.task(name="double", queue="work", retry=RETRY)
    async def double(number: int) -> int:
        return number * 2

    @app.task(name="fail", queue="work", retry=RETRY)
    async def fail(text: str) -> None:
        raise ValueError(text)

    @app.task(name="end", queue="work", retry=None)
    async def end(how: str) -> object:
        match how:
            case "reject":
                raise Reject(reason="no")
            case "ignore":
                raise Ignore
            case "unstorable":
                return object()
            case "retry":
                raise Retry(delay="5s", reason="again")
            case "never":
                raise Snooze(delay=timedelta.max)
            case _:
                return how

    @app.task(name="snooze", queue="work", retry=None)
    async def snooze(until: int) -> str:
        if app.sessions.clock.now_ms() < until:
            raise Snooze(delay="20s")
        return "rested"

    @app.task(name="sleep", queue="work", retry=None)
    async def sleep(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    @app.task(name="fail_late", queue="work", retry=None)
    async def fail_late(seconds: float) -> None:
        await asyncio.sleep(seconds)
        raise ValueError("late")

    @app.task(name="counted", queue="work", retry=None)
    async def counted(context: Context, until: int) -> list[int]:
        await context.resume()
        found: list[int] = [*(context.last_checkpoint or [])]
        while len(found) < until:
            found.append(len(found) + 1)
            await context.acheckpoint(found)
            if len(found) == until - 1:
                raise ValueError("not yet")
        return found

    @app.task(name="kept", queue="work", lane="store", retry=RETRY)
    async def kept(number: int) -> int:
        return number + 1

    @app.task(name="once", queue="work", ack="early")
    async def once(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"


@dataclass
class Shop:
    """A scheduler whose app submits, and a worker of another app."""

    stage: Stage
    process: Process
    worker: Worker
    broker: FlakyBroker
    running: "asyncio.Task[None]"

    @property
    def app(self) -> TaskMQ:
        return self.process.app

    @property
    def jobs(self) -> Jobs:
        return self.process.app.jobs


@asynccontextmanager
async def _open_shop(
    stage: Stage, *, has_state: bool, knows_tasks: bool, is_impatient: bool, also: Callable[[TaskMQ], None]
) -> AsyncIterator[Shop]:
    process = stage.start(has_state=has_state)
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    also(app)
    if knows_tasks:
        define(app)
    else:
        app.task(name="other", queue="work")(lambda: None)
    app.sessions.clock = stage.clock
    options = BrokerOptions(name="worker", clock=stage.clock)
    kind = ImpatientBroker if is_impatient else HeardBroker
    broker = kind(open_memory_broker(f"memory://{stage.name}", options))
    state = open_memory_state(f"memory://{stage.name}", options) if has_state else None
    session = Session(broker, state, send_timeout=5.0, clock=stage.clock)
    use_session(app, lambda: session)
    worker = Worker(app, WorkerConfig(name="w1", grace=1.0))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield Shop(stage, process, worker, broker, running)
    finally:
        worker.requeue_now()
        await running
        await app.aclose()


def in_shop(
    test: Callable[[Shop], Coroutine[None, None, None]],
    *,
    has_state: bool = True,
    knows_tasks: bool = True,
    is_impatient: bool = False,
    also: Callable[[TaskMQ], None] = lambda _: None,
) -> None:
    """Run a test in a shop.

    Args:
        also: defines more tasks.
        is_impatient: the worker's broker requeues messages that stay unsettled for too long.
    """

    async def run(stage: Stage) -> None:
        opened = _open_shop(stage, has_state=has_state, knows_tasks=knows_tasks, is_impatient=is_impatient, also=also)
        async with opened as shop:
            await test(shop)

    def define_all(app: TaskMQ) -> None:
        define(app)
        also(app)

    play_one(run, define_all)
