"""Procrastinate with 100 concurrent jobs in one worker."""

from collections.abc import Callable
from typing import Any

from jobs_script import DATABASE, Peer, answer, started
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=DATABASE, min_size=4, max_size=16))


@app.task(name="stamp")
async def stamp(sent: int) -> None:
    started(sent)


class ProcrastinatePeer(Peer):
    async def setup(self) -> None:
        await app.schema_manager.apply_schema_async()

    async def around(self, work: Callable[[], Any]) -> None:
        async with app.open_async():
            await work()

    async def one(self, sent: int) -> None:
        await stamp.defer_async(sent=sent)

    async def many(self, sent: list[int]) -> None:
        await stamp.batch_defer_async(*({"sent": each} for each in sent))

    async def work(self) -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=100, install_signal_handlers=False)


answer(ProcrastinatePeer())
