"""Limits and locks, as type checkers see them."""

from typing import assert_type

from taskmq import Concurrency, Context, Lock, RateLimit, TaskMQ

app = TaskMQ("memory://typing")


@app.task(rate_limit="100/s", concurrency=5)
async def plain(number: int) -> int:
    return number


@app.task(
    rate_limit=[RateLimit("10/m", key="{account}", burst=5), "1000/h"],
    concurrency=[Concurrency(2, key=str.upper), 10],
)
def keyed(account: str) -> None: ...


@app.task(rate_limit=RateLimit("1/s", name="shared", on_failure="open"))
async def locking(context: Context, account: int) -> None:
    async with context.lock(f"account:{account}", timeout="5s") as lock:
        assert_type(lock, Lock)
        assert_type(lock.token, int)
        assert_type(lock.is_lost, bool)
        assert_type(await lock.wait_lost(), bool)


def blocking() -> None:
    with app.lock("name", lease=60) as lock:
        assert_type(lock, Lock)


RateLimit("1/s", on_failure="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Concurrency("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.task(concurrency="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
