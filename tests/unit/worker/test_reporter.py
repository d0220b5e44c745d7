"""Reports of a worker process on its status pipe."""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from taskmq import TaskMQ
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.child_protocol import ChildReady, ChildReport, read_line
from taskmq.worker.reporter import Reporter
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time

PERIOD = 0.01


class Reader:
    """The supervisor's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self.said: list[ChildReady | ChildReport] = []
        os.set_blocking(descriptor, False)

    def read(self) -> None:
        try:
            while part := os.read(self._descriptor, 1 << 16):
                *lines, self._rest = (self._rest + part).split(b"\n")
                said = [read_line(line + b"\n") for line in lines]
                assert None not in said
                self.said += [each for each in said if each is not None]
        except BlockingIOError:
            pass

    async def until(self, holds: Callable[[], bool]) -> None:
        def has_read() -> bool:
            self.read()
            return holds()

        await until(has_read)

    @property
    def reports(self) -> list[ChildReport]:
        return [each for each in self.said if isinstance(each, ChildReport)]

    @property
    def ended(self) -> int:
        """Return the runs that it knows."""
        counts = {(count.task, count.queue): count.ended for report in self.reports for count in report.counts}
        return sum(counts.values())


def _app() -> TaskMQ:
    app = TaskMQ(new_url())

    @app.task(name="work", queue="jobs")
    async def work() -> None: ...

    return app


@asynccontextmanager
async def _reporting(app: TaskMQ, *, looks: bool = False) -> AsyncGenerator[Reader]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    worker = Worker(app, WorkerConfig())
    reporter = Reporter(worker, app, target="a:b", status=writing, looks=looks, period=PERIOD)
    reporting, running = asyncio.create_task(reporter.run()), asyncio.create_task(worker.run())
    try:
        await worker.is_ready.wait()
        yield Reader(reading)
    finally:
        worker.drain()
        await running
        reporting.cancel()
        await asyncio.wait((reporting,))
        os.close(reading)


async def test_a_worker_reports_once_that_it_is_ready_and_then_its_status() -> None:
    async with _reporting(_app()) as reader:
        await reader.until(lambda: len(reader.reports) >= 3)
        assert [each for each in reader.said if isinstance(each, ChildReady)] == [
            ChildReady(app="a:b", broker=_address(reader), queues=["jobs"], tasks=["work"])
        ]
        assert reader.reports[-1].status.state == "running"
        assert reader.reports[-1].depths is None


def _address(reader: Reader) -> str:
    (ready,) = [each for each in reader.said if isinstance(each, ChildReady)]
    assert ready.broker.startswith("memory://")
    return ready.broker


async def test_runs_of_all_classes_of_a_queue_are_one_count_reported_only_with_news() -> None:
    app = _app()
    async with _reporting(app) as reader:
        for priority in (0, 5, 9):
            await app.tasks["work"].options(priority=priority).asend()
        await reader.until(lambda: reader.ended == 3)
        seen = len(reader.reports)
        await reader.until(lambda: len(reader.reports) >= seen + 3)
        assert {(count.task, count.queue) for report in reader.reports for count in report.counts} == {
            ("work", "jobs")
        }
        assert all(not report.counts for report in reader.reports[seen:])


async def test_a_supervisor_that_does_not_read_delays_nothing_and_misses_no_run() -> None:
    app = _app()
    async with _reporting(app) as reader:
        for _ in range(50):
            await app.tasks["work"].asend()
            # Far more reports than fit into the pipe.
            await asyncio.sleep(PERIOD)
        await reader.until(lambda: reader.ended == 50)


async def test_a_polling_reporter_counts_the_waiting_messages() -> None:
    app = _app()
    async with _reporting(app, looks=True) as reader:
        await reader.until(lambda: bool(reader.reports) and reader.reports[-1].depths == {"jobs": 0})


async def test_a_dead_supervisor_gets_no_more_reports() -> None:
    app = _app()
    reading, writing = os.pipe()
    worker = Worker(app, WorkerConfig())
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    reporter = Reporter(worker, app, target="a:b", status=writing, looks=False, period=PERIOD)
    os.close(reading)

    await asyncio.wait_for(reporter.run(), 10)

    worker.drain()
    await running
