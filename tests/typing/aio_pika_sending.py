"""Jobs over a connection of aio-pika."""

from typing import assert_type

from aio_pika.abc import AbstractChannel, AbstractTransaction

from taskmq import Job, TaskMQ
from taskmq_aio_pika import send

app = TaskMQ("memory://")


@app.task
async def add(left: int, right: int = 0) -> int:
    return left + right


async def main(channel: AbstractChannel, transaction: AbstractTransaction) -> None:
    assert_type(await send(channel, add, 1, right=2), Job[int])
    assert_type(await send(transaction, add.options(delay="5m"), 1), Job[int])
    await send(channel, add, "one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await send(channel, add)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
