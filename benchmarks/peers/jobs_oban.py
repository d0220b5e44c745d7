"""Oban for Python, with a queue of 100 concurrent jobs."""

import asyncio
from collections.abc import Callable
from typing import Any

from jobs_script import DATABASE, Peer, answer, started
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


@worker(queue="default")
class Stamp:
    async def process(self, job: Any) -> None:
        started(job.args["sent"])


class ObanPeer(Peer):
    async def setup(self) -> None:
        await install(self.pool)

    async def around(self, work: Callable[[], Any]) -> None:
        async with AsyncConnectionPool(DATABASE, min_size=4, max_size=16, open=False) as self.pool:
            self.oban = Oban(pool=self.pool)
            await work()

    async def one(self, sent: int) -> None:
        await self.oban.enqueue(Stamp.new({"sent": sent}))

    async def many(self, sent: list[int]) -> None:
        await self.oban.enqueue_many(*(Stamp.new({"sent": each}) for each in sent))

    async def work(self) -> None:
        async with (
            AsyncConnectionPool(DATABASE, min_size=4, max_size=16, open=False) as pool,
            Oban(pool=pool, queues={"default": 100}),
        ):
            await asyncio.Event().wait()


answer(ObanPeer())
