"""An app with a task for each feature."""

import asyncio
import time
from pathlib import Path
from uuid import uuid4

from taskmq import Concurrency, Context, RateLimit, RetryPolicy, TaskMQ, WorkQueue
from taskmq.reactions import JobEnded, job

_RETRY = RetryPolicy(max_attempts=3, backoff="constant", base="50ms", jitter=False)


def build_app(url: str, *, store: str | None, state: str | None, results_at: Path) -> TaskMQ:
    """Return the app; its workers, schedulers and callers build equal ones."""
    queues = [WorkQueue("line", ordered=2)]
    app = TaskMQ(
        url,
        store=store,
        state=state,
        name="features",
        queues=queues,
        results_at=f"file://{results_at}",
        result_inline="1K",
    )
    _define_plain(app)
    _define_limited(app)
    _define_reporting(app)

    @app.on(job("stop", state=["failed"]))
    @app.task(name="react", queue="work", lane="store")
    async def react(ended: JobEnded) -> str:
        return ended.job_id

    return app


def _define_plain(app: TaskMQ) -> None:
    @app.task(name="double", queue="work")
    async def double(number: int) -> int:
        return 2 * number

    @app.task(name="fill", queue="work")
    async def fill(size: int) -> str:
        return "x" * size

    @app.task(name="third-time", queue="work", retry=_RETRY)
    async def third_time(context: Context) -> int:
        if context.attempt < 3:
            raise ValueError(context.attempt)
        return context.attempt

    @app.task(name="sleep", queue="work", retry=None)
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.task(name="stop", queue="work", retry=None)
    async def stop(text: str) -> None:
        raise ValueError(text)

    @app.task(name="rest", queue="rests")
    async def rest() -> None: ...

    @app.task(name="write", queue="work")
    async def write(path: str, text: str) -> None:
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


def _define_limited(app: TaskMQ) -> None:
    async def run(number: int) -> tuple[float, float]:
        """Return when the run began and ended."""
        began = time.time()
        await asyncio.sleep(0.03)
        return began, time.time()

    async def pay(context: Context, order: int) -> tuple[str, int]:
        return uuid4().hex, context.fencing_token

    async def follow(account: str, number: int) -> tuple[float, float]:
        return await run(number)

    app.task(name="alone", queue="work", retry=None, concurrency=Concurrency(1, name="alone"))(run)
    app.task(name="paced", queue="work", retry=None, rate_limit=RateLimit("5/s"))(run)
    app.task(name="strict", queue="work", retry=None, rate_limit=RateLimit("5/s", strict=True))(run)
    app.task(name="pay", queue="work", idempotency_key="order")(pay)
    app.task(name="follow", queue="line", order_key="account", retry=None)(follow)
    app.task(name="single", queue="rests", unique=True, lane="store")(run)

    @app.task(name="locked", queue="work")
    async def locked(number: int) -> tuple[float, float]:
        async with app.lock("door"):
            return await run(number)


def _define_reporting(app: TaskMQ) -> None:
    @app.task(name="report", queue="work", retry=None)
    async def report(context: Context) -> None:
        context.progress(2, 3, "two of three")
        await asyncio.sleep(60)

    @app.task(name="steps", queue="work", retry=_RETRY)
    async def steps(context: Context) -> tuple[str, int]:
        found: str = await context.astep("make", _make)
        if context.attempt == 1:
            raise ValueError(found)
        return found, context.attempt

    @app.task(name="nap", queue="work", retry=None)
    async def nap(context: Context) -> tuple[int, int]:
        before: int = await context.astep("before", _now)
        await context.asleep("300ms")
        return await _now() - before, context.attempt

    @app.task(name="wait", queue="work", retry=None)
    async def wait(context: Context) -> int:
        return await context.await_for("go", int)

    @app.task(name="resume", queue="work", retry=_RETRY)
    async def resume(context: Context) -> object:
        await context.resume()
        if context.attempt == 1:
            await context.acheckpoint("half way")
            raise ValueError("not yet")
        return context.last_checkpoint


_made = 0


async def _now() -> int:
    return time.time_ns() // 1_000_000


async def _make() -> str:
    global _made
    _made += 1
    return f"made {_made}"
