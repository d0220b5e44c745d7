"""arq as a contender, on Redis: no results; it polls the queue at its default interval or, tuned, every 50 ms."""

import os

from arq import create_pool, func
from arq.connections import RedisSettings
from script import Producer, answer, in_groups
from tally import ARGUMENTS, count, record_lateness

_REDIS = RedisSettings.from_dsn(os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0"))
_TUNED = {} if os.environ.get("BENCH_DEFAULTS") else {"max_jobs": 100, "poll_delay": 0.05}


async def noop(ctx, number, text, data):
    count()


async def stamp(ctx, number, sent_ns):
    record_lateness(number, sent_ns)


class WorkerSettings:
    functions = (func(noop, keep_result=0), func(stamp, keep_result=0))
    redis_settings = _REDIS


for _name, _value in _TUNED.items():
    setattr(WorkerSettings, _name, _value)

QUIET = {"version": 1, "disable_existing_loggers": False, "loggers": {"arq": {"level": "ERROR"}}}


class Arq(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.concurrent}

    async def prepare(self):
        self.pool = await create_pool(_REDIS)

    async def finish(self):
        await self.pool.aclose()

    async def send(self, number):
        await self.pool.enqueue_job("noop", number, *ARGUMENTS)

    async def one(self, number):
        for each in range(number):
            await self.send(each)

    async def concurrent(self, number):
        await in_groups(number, self.send, size=100)

    async def stamp(self, number, due_ns, delay):
        await self.pool.enqueue_job("stamp", number, due_ns, _defer_by=delay or None)


if __name__ == "__main__":
    answer(Arq())
