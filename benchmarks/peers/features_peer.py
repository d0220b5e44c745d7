"""taskmq with one feature that needs Redis (`BENCH_FEATURE`); each run of a task counts once.

The producer's modes are the names of the features; `count` is the number of runs.
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any

from script import Producer, answer, in_groups
from tally import ARGUMENTS, count

from taskmq import Context, TaskMQ, WorkQueue

_MANY = 100_000

app = TaskMQ(
    os.environ["BENCH_URL"],
    state=os.environ["BENCH_REDIS"],
    queues=[WorkQueue("bench")],
    default_queue="bench",
    delay="state" if os.environ.get("BENCH_FEATURE") == "delay" else "broker",
)


def _noop(name: str, **options: Any) -> Any:
    async def noop(key: str, text: str, data: dict[str, int | str]) -> None:
        count()

    return app.task(name=f"features.{name}", **{"result": False, **options})(noop)


@app.task(name="features.lock", result=False)
async def lock(context: Context, key: str, text: str, data: dict[str, int | str]) -> None:
    async with context.lock(key):
        count()


@app.task(name="features.progress", result=False)
async def progress(context: Context, key: str, text: str, data: dict[str, int | str]) -> None:
    context.progress(1, 2)
    count()


@app.task(name="features.checkpoint", result=False)
async def checkpoint(context: Context, key: str, text: str, data: dict[str, int | str]) -> None:
    await context.acheckpoint(1)
    count()


@app.task(name="features.step", result=False)
async def step(context: Context, key: str, text: str, data: dict[str, int | str]) -> None:
    await context.astep("one", _return, key)
    count()


async def _return(key: str) -> str:
    return key


@app.task(name="features.token", result=False)
async def token(context: Context, key: str, text: str, data: dict[str, int | str]) -> None:
    await context.resume()
    assert context.fencing_token
    count()


_TASKS = {
    "nothing": _noop("nothing"),
    "result": _noop("result", result=True),
    "idempotency key": _noop("key", idempotency_key="key"),
    "unique": _noop("unique", unique="key"),
    "rate limit": _noop("rate", rate_limit=f"{_MANY}/s"),
    "concurrency": _noop("concurrency", concurrency=_MANY),
    "lock": lock,
    "progress": progress,
    "checkpoint": checkpoint,
    "step": step,
    "fencing token": token,
    "delay": _noop("delay", delay="1s"),
}
_AWAITED = _noop("awaited", result=True)


async def _bulk(task: Any, number: int) -> None:
    await task.asend_many((str(each), *ARGUMENTS) for each in range(number))


async def _awaited(number: int) -> None:
    async def call(each: int) -> None:
        await (await _AWAITED.asend(str(each), *ARGUMENTS)).aresult(timeout=60)

    await in_groups(number, call, size=100)


class Features(Producer):
    def __init__(self) -> None:
        super().__init__()
        self.modes = {name: _sender(task) for name, task in _TASKS.items()}
        self.modes |= {
            "awaited result": _awaited,
        }

    async def prepare(self) -> None:
        await app.sessions.current().declare(app.tasks.queues)

    async def finish(self) -> None:
        await app.aclose()


def _sender(task: Any) -> Callable[[int], Coroutine[Any, Any, None]]:
    return lambda number: _bulk(task, number)


if __name__ == "__main__":
    answer(Features())
