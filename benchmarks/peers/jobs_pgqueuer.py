"""PgQueuer with batches of 100, which suit no-op jobs."""

from collections.abc import Callable
from typing import Any

import asyncpg
from jobs_script import DATABASE, Peer, answer, started
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, PgQueuer, Queries


class PgQueuerPeer(Peer):
    async def setup(self) -> None:
        await self.queries.install()

    async def around(self, work: Callable[[], Any]) -> None:
        connection = await asyncpg.connect(DATABASE)
        self.queries = Queries(AsyncpgDriver(connection))
        await work()
        await connection.close()

    async def one(self, sent: int) -> None:
        await self.queries.enqueue("stamp", b"%d" % sent)

    async def many(self, sent: list[int]) -> None:
        await self.queries.enqueue(["stamp"] * len(sent), [b"%d" % each for each in sent], [0] * len(sent))

    async def work(self) -> None:
        pool = await asyncpg.create_pool(DATABASE, min_size=4, max_size=8)
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        @queue.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            started(int(job.payload or b"0"))

        await queue.run(batch_size=100)


answer(PgQueuerPeer())
