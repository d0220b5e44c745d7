"""streaQ as a contender, on Redis: no results, no log line per task."""

import os

from script import Producer, answer, in_groups
from streaq import Worker
from tally import ARGUMENTS, count, record_lateness

_TUNED = {} if os.environ.get("BENCH_DEFAULTS") else {"concurrency": 100}

worker = Worker(redis_url=os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0"), **_TUNED)


@worker.task(silent=True, ttl=0)
async def noop(number: int, text: str, data: dict) -> None:
    count()


@worker.task(silent=True, ttl=0)
async def stamp(number: int, sent_ns: int) -> None:
    record_lateness(number, sent_ns)


# Tasks that wait for it later need its result to see that it has run.
@worker.task(silent=True)
async def part(number: int) -> int:
    count()
    return number


@worker.task(silent=True, ttl=0)
async def gathered(sent_ns: int) -> None:
    record_lateness(0, sent_ns)


class Streaq(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.bulk}

    async def around(self, work):
        async with worker:
            await work()

    async def send(self, number):
        await noop.enqueue(number, *ARGUMENTS)

    async def one(self, number):
        for each in range(number):
            await self.send(each)

    async def concurrent(self, number):
        await in_groups(number, self.send, size=100)

    async def bulk(self, number):
        for first in range(0, number, 1000):
            many = range(first, min(first + 1000, number))
            await worker.enqueue_many([noop.enqueue(each, *ARGUMENTS) for each in many])

    async def fan(self, number, sent_ns):
        """Send tasks and one that depends on them; streaQ passes it no values."""
        parts = [part.enqueue(each) for each in range(number)]
        for first in range(0, number, 1000):
            await worker.enqueue_many(parts[first : first + 1000])
        await gathered.enqueue(sent_ns).start(after=[each.id for each in parts])

    async def stamp(self, number, due_ns, delay):
        call = stamp.enqueue(number, due_ns)
        await (call.start(delay=delay) if delay else call)


if __name__ == "__main__":
    answer(Streaq())
