"""Decorators of a task with a reaction."""

from datetime import UTC, datetime
from typing import assert_type

from taskmq import TaskMQ
from taskmq.reactions import (
    AllOf,
    FileArrived,
    JobEnded,
    MessageArrived,
    ReactionEvent,
    Reactions,
    RunEnded,
    all_of,
    amqp,
    any_of,
    file,
    job,
    message,
    run,
)
from taskmq.schedules.triggers import cron

app = TaskMQ("memory://")


@app.on(file("/in/*", done=".done", stable="5s"), name="by file")
@app.task
def load(arrived: FileArrived) -> str:
    return arrived.path


@app.on(job(load, "other", state=["succeeded", "dead"]))
@app.task(name="index")
async def index(ended: JobEnded) -> None: ...


@app.on(run("nightly", ["failed", "cancelled"]))
@app.task(name="alarm")
def alarm(ended: RunEnded) -> None: ...


@app.on(message("orders.#", exchange="sales"))
@app.task(name="order")
def order(came: MessageArrived) -> None: ...


@app.on(amqp("amqp://crm/", queue="orders"), name="crm")
@app.on(amqp(exchange="sales", keys=["bill.*"], prefetch=20), name="bills")
@app.task(name="book")
def book(came: MessageArrived) -> None: ...


@app.on(all_of(any_of(job(load), file("/in/*")), message("go"), cron("0 6 * * *")), debounce="30s")
@app.task(name="both")
def both(happened: list[ReactionEvent]) -> None: ...


# A reaction leaves the task unchanged.
assert_type(load(FileArrived(path="a", size=1, modified=datetime(2027, 1, 1, tzinfo=UTC))), str)
assert_type(app.reactions, Reactions)
assert_type(all_of(job("a"), job("b")), AllOf)

app.on(file(3))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.on("orders.#")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
all_of(job("a"), "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
