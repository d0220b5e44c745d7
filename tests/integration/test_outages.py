"""Stored jobs whose runs were interrupted by a Redis outage or a stopping worker."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from taskmq import Context, TaskMQ
from taskmq.contracts.jobs import HistoryEntry
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.servers import Redis
from tests.servers.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(90)]

_PATIENCE = 30.0


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


class _Site:
    """An app with a task that saves its position, and a record of its runs."""

    def __init__(self, folder: Path, state: str | None) -> None:
        self.memory = uuid4().hex
        self.open = asyncio.Event()
        self.saved: list[int] = []
        self.runs: list[tuple[int, int]] = []
        self._folder = folder
        self._state = state
        self.app = self._new_app()

    def _new_app(self) -> TaskMQ:
        """Each process has its own."""
        app = TaskMQ(
            f"memory://{self.memory}",
            state=self._state,
            store=f"sqlite:///{self._folder}/jobs.db",
            name=f"shop{self.memory}",
        )
        app.task(name="archive", queue="work", retry=None)(self._archive)
        app.task(name="wait", queue="work", retry=None)(self._wait)
        return app

    async def _archive(self, context: Context) -> int:
        await context.resume()
        begin = context.last_checkpoint or 0
        self.runs.append((begin, context.attempt))
        for number in range(begin, 6):
            await context.acheckpoint(number)
            self.saved.append(number)
            if number == 3:
                await self.open.wait()
                # A call that needs the state; checkpoints are in the store.
                await self.app.job("other").aprogress()
        return int(begin)

    async def _wait(self, context: Context) -> str:
        self.runs.append((0, context.attempt))
        await self.open.wait()
        return "done"

    @asynccontextmanager
    async def scheduling(self) -> AsyncGenerator[None]:
        scheduler = Scheduler(self._new_app())
        running = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            scheduler.stop()
            await running
            await self.app.aclose()
            forget_memory(self.memory)

    @asynccontextmanager
    async def working(self, name: str) -> AsyncGenerator[Worker]:
        worker = Worker(self._new_app(), WorkerConfig(name=name, grace=0))
        running = asyncio.create_task(worker.run())
        try:
            await worker.is_ready.wait()
            yield worker
        finally:
            worker.drain()
            await running

    async def interruptions(self, job_id: str) -> list[HistoryEntry]:
        return [entry for entry in await self.app.jobs.ahistory(job_id) if entry.kind == "interrupted"]

    async def was_interrupted(self, job_id: str) -> bool:
        return bool(await self.interruptions(job_id))


async def test_a_stored_job_survives_a_redis_outage_and_resumes_at_its_checkpoint(
    tmp_path: Path, redis: Redis
) -> None:
    site = _Site(tmp_path, f"{redis.url}?timeout=0.5")
    async with site.scheduling(), site.working("w1"):
        job = await site.app.jobs.asubmit("archive")
        await until(lambda: 3 in site.saved, "the checkpoint")

        redis.stop()
        site.open.set()
        await until(lambda: site.was_interrupted(job.id), "the interruption")
        redis.start()

        assert await job.aresult(timeout=_PATIENCE) == 3
        record = await site.app.jobs.aget(job.id)
        entries = await site.interruptions(job.id)
    assert (record.state, record.attempt) == (JobState.SUCCEEDED, 1)
    assert (site.runs[0], site.runs[-1]) == ((0, 1), (3, 1))
    assert (entries[0].by, entries[0].state) == ("w1", JobState.SCHEDULED)
    assert entries[0].note.startswith("outage: taskmq.errors.StateUnavailable: the state redis://127.0.0.1")
    assert record.started is not None
    assert record.first_started is not None
    assert record.first_started < record.started


async def test_the_history_of_a_job_shows_its_interruption_by_a_deploy(tmp_path: Path) -> None:
    site = _Site(tmp_path, None)
    async with site.scheduling():
        async with site.working("old"):
            job = await site.app.jobs.asubmit("wait")
            await until(lambda: len(site.runs) == 1, "the first run")
        site.open.set()
        async with site.working("new"):
            assert await job.aresult(timeout=_PATIENCE) == "done"
        record = await site.app.jobs.aget(job.id)
        entries = await site.interruptions(job.id)

    assert (record.state, record.attempt, record.worker) == (JobState.SUCCEEDED, 1, "new")
    assert [(entry.by, entry.note) for entry in entries] == [("old", "its worker stopped")]
    assert record.first_started is not None
    assert record.started is not None
    assert record.first_started < record.started
