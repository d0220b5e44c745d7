"""Apps, schedules, middleware, and the context of a task."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import assert_type

from taskmq import (
    Cancellation,
    Context,
    Execution,
    Job,
    Middleware,
    PartlySent,
    Proceed,
    Reject,
    Retry,
    RetryPolicy,
    SendError,
    Sending,
    Snooze,
    Task,
    TaskFailed,
    TaskMQ,
    WaitingJob,
)
from taskmq.schedules import ScheduleEntry

app = TaskMQ(
    "amqp://localhost/",
    state="redis://localhost/",
    name="shop",
    include=["shop.tasks"],
    default_queue="shop",
    content_type="msgpack",
    send_timeout="5s",
    result_ttl=timedelta(days=1),
    delay="state",
)
assert_type(app.sessions.url, str)
assert_type(app.sessions.state_url, str | None)
_schedules: Mapping[str, ScheduleEntry] = app.schedules
_tasks: Mapping[str, Task[..., object]] = app.tasks

TaskMQ(content_type="yaml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
TaskMQ(delay="redis")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
TaskMQ("memory://", "memory://")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
TaskMQ(send_timeout=[5])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
TaskMQ(middleware=[Middleware])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

with TaskMQ() as entered:
    assert_type(entered, TaskMQ)


assert_type(app.jobs.list_waiting(task="shop.sell", queue="shop", limit=5), list[WaitingJob])
assert_type(app.job("a").cancel(), Cancellation)
assert_type(app.job("a").reschedule(delay="5m"), bool)
app.job("a").reschedule("5m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def in_a_loop() -> None:
    assert_type(await app.jobs.alist_waiting(), list[WaitingJob])
    assert_type(await app.job("a").acancel(), Cancellation)
    assert_type(await app.job("a").areschedule(eta=datetime(2030, 1, 1, tzinfo=UTC)), bool)
    async with TaskMQ() as entered:
        assert_type(entered, TaskMQ)
        await entered.aclose()


# Schedules: the decorator leaves the task unchanged


@app.every("30s")
@app.task
def tick(count: int = 1) -> str:
    return ""


@app.every(timedelta(hours=1), name="hourly")
@app.every(5, name="often")
@app.task(queue="clock")
async def atick(ctx: Context) -> str:
    return ""


assert_type(tick(2), str)
assert_type(tick.send(2), Job[str])
assert_type(atick.send(), Job[str])

tick.send("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
atick.send("a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@app.every("30s")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def no_task() -> None: ...


app.every(perid="30s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.every([30])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Tracing(Middleware):
    def send(self, sending: Sending) -> AbstractContextManager[object] | None:
        sending.queue = sending.queue.upper()
        sending.headers["a"] = 1
        sending.headers["b"] = 1.5  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
        return nullcontext()

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        assert_type(execution.context, Context)
        return await proceed(execution)


class Wrong(Middleware):
    def send(self, sending: str) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]


TaskMQ(middleware=[Tracing()])


# Context and control flow


@app.task
def looks_around(ctx: Context) -> None:
    assert_type(ctx.job_id, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.is_last_attempt, bool)
    assert_type(ctx.deadline, datetime | None)
    assert_type(ctx.cancelled, bool)
    assert_type(ctx.tenant, str | None)
    assert_type(ctx.meta, Mapping[str, str])
    assert_type(ctx.scheduled_for, datetime | None)
    ctx.tenant = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    if ctx.attempt == 1:
        raise Retry(delay="5s", reason="not yet")
    if ctx.attempt == 2:
        raise Snooze(timedelta(minutes=1))
    raise Reject("never")


Snooze()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Reject()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

RetryPolicy(max_attempts=3, backoff="linear", base="1s", cap=timedelta(minutes=1), on=(OSError,), never=(KeyError,))
RetryPolicy(backoff="quadratic")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy(on=OSError)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy(3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

try:
    tick.send()
except PartlySent as error:
    assert_type(error.failures, dict[int, SendError])
    assert_type(error.sent, int)
except TaskFailed as failed:
    assert_type(failed.attempts, int)
