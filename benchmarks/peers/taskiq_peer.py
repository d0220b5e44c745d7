"""Taskiq with taskiq-aio-pika as a contender."""

import asyncio
import os

from script import Producer, answer, in_groups
from tally import ARGUMENTS, count, record_lateness
from taskiq_aio_pika import AioPikaBroker, Queue, QueueType

_KIND = QueueType.QUORUM if os.environ.get("BENCH_KIND") == "quorum" else QueueType.CLASSIC
_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PROMPT = f"{_QUEUE}-prompt" if os.environ.get("BENCH_PROMPT") else _QUEUE

broker = AioPikaBroker(
    os.environ["BENCH_URL"],
    task_queues=[Queue(name=name, type=_KIND) for name in dict.fromkeys((_QUEUE, _PROMPT))],
    delay_queue=Queue(name=f"{_QUEUE}.delay", type=_KIND),
    **({} if os.environ.get("BENCH_DEFAULTS") else {"qos": 250}),
)


@broker.task(task_name="bench.noop", queue_name=_QUEUE)
async def noop(number: int, text: str, data: dict) -> None:
    count()


@broker.task(task_name="bench.noop_sync", queue_name=_QUEUE)
def noop_sync(number: int, text: str, data: dict) -> None:
    count()


@broker.task(task_name="bench.stamp", queue_name=_PROMPT)
async def stamp(number: int, sent_ns: int) -> None:
    record_lateness(number, sent_ns)


@broker.task(task_name="bench.pause", queue_name=_QUEUE)
async def pause(milliseconds: int) -> None:
    await asyncio.sleep(milliseconds / 1000)
    count()


class Taskiq(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.concurrent, "sync": self.sync}

    async def prepare(self):
        await broker.startup()

    async def finish(self):
        await broker.shutdown()

    async def one(self, number):
        for each in range(number):
            await noop.kiq(each, *ARGUMENTS)

    async def concurrent(self, number):
        await in_groups(number, lambda each: noop.kiq(each, *ARGUMENTS), size=100)

    async def sync(self, number):
        await in_groups(number, lambda each: noop_sync.kiq(each, *ARGUMENTS), size=100)

    async def stamp(self, number, due_ns, delay):
        if delay:
            await stamp.kicker().with_labels(delay=delay).kiq(number, due_ns)
        else:
            await stamp.kiq(number, due_ns)

    async def pause(self, milliseconds):
        await pause.kiq(milliseconds)


if __name__ == "__main__":
    answer(Taskiq())
