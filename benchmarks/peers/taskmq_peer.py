"""taskmq as a contender: all settings at their defaults: confirmed, mandatory, typed, acknowledged after the run."""

import asyncio
import os

from script import Producer, answer, in_groups
from tally import ARGUMENTS, count, record_lateness

from taskmq import TaskMQ, WorkQueue

_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PROMPT = f"{_QUEUE}-prompt" if os.environ.get("BENCH_PROMPT") else _QUEUE
_KIND = "classic" if os.environ.get("BENCH_KIND") == "classic" else "quorum"

app = TaskMQ(
    os.environ["BENCH_URL"],
    state=os.environ.get("BENCH_REDIS"),
    queues=[WorkQueue(name, kind=_KIND) for name in dict.fromkeys((_QUEUE, _PROMPT))],
    default_queue=_QUEUE,
)


@app.task(name="bench.noop")
async def noop(number: int, text: str, data: dict[str, int | str]) -> None:
    count()


@app.task(name="bench.noop_sync")
def noop_sync(number: int, text: str, data: dict[str, int | str]) -> None:
    count()


# A worker starts a pool only if one of its tasks needs it.
@app.task(name="bench.noop_process", executor="process" if os.environ.get("BENCH_POOL") else "auto")
def noop_process(number: int, text: str, data: dict[str, int | str]) -> None:
    count()


@app.task(name="bench.stamp", queue=_PROMPT)
async def stamp(number: int, sent_ns: int) -> None:
    record_lateness(number, sent_ns)


@app.task(name="bench.pause")
async def pause(milliseconds: int) -> None:
    await asyncio.sleep(milliseconds / 1000)
    count()


class Taskmq(Producer):
    def __init__(self) -> None:
        super().__init__()
        self.modes = {
            "one": self.one,
            "concurrent": self.concurrent,
            "bulk": lambda number: self.bulk(noop, number),
            "sync": lambda number: self.bulk(noop_sync, number),
            "process": lambda number: self.bulk(noop_process, number),
        }

    async def prepare(self) -> None:
        await app.sessions.current().declare(app.tasks.queues)

    async def finish(self) -> None:
        await app.aclose()

    async def one(self, number: int) -> None:
        for each in range(number):
            await noop.asend(each, *ARGUMENTS)

    async def concurrent(self, number: int) -> None:
        await in_groups(number, lambda each: noop.asend(each, *ARGUMENTS), size=100)

    async def bulk(self, task, number: int) -> None:
        await task.asend_many((each, *ARGUMENTS) for each in range(number))

    async def stamp(self, number: int, due_ns: int, delay: float) -> None:
        if delay:
            await stamp.options(delay=delay).asend(number, due_ns)
        else:
            await stamp.asend(number, due_ns)

    async def pause(self, milliseconds: int) -> None:
        await pause.asend(milliseconds)


if __name__ == "__main__":
    answer(Taskmq())
