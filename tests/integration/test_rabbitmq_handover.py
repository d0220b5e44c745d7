"""Tasks that run for longer than RabbitMQ's consumer timeout: they are handed over to the state."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from taskmq import TaskMQ
from taskmq.testing.runner import case, eventually
from taskmq.worker import Worker, WorkerConfig
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.servers import RabbitMQ, Redis

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.timeout(120)]

ALLOWED = 6
LEASE_SECONDS = 2.0

JOBS = """
import asyncio, os
from pathlib import Path
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])

@app.task(name="long", result=False)
async def long(name: str) -> None:
    with open("ledger", "a") as ledger:
        ledger.write(f"{os.getpid()}\\n")
    while not Path(f"open-{name}").exists():
        await asyncio.sleep(0.05)
"""

WORKER = f"""
import asyncio
from taskmq.worker import Worker, WorkerConfig
from jobs import app

asyncio.run(Worker(app, WorkerConfig(name="doomed", lease={LEASE_SECONDS})).run())
"""


@pytest.fixture(scope="module")
def rabbitmq_server(request: pytest.FixtureRequest) -> Iterator[RabbitMQ]:
    """Start a node that requeues unsettled deliveries within seconds; none of these tests stops it."""
    with ExitStack() as stack:
        if os.environ.get("TASKMQ_TEST_RABBITMQ", "3.10") < "4.3":
            server = request.getfixturevalue("rabbitmq_server")
        else:
            # There each consumer states a very long timeout itself.
            server = stack.enter_context(RabbitMQ("3.10"))
        # Each channel checks it once per tick, which is a minute by default.
        stack.enter_context(server.settings({"consumer_timeout": ALLOWED * 1000, "channel_tick_interval": 1000}))
        yield server


class HandoverCase(RabbitMQCase):
    """Workers that know the short consumer timeout of their node."""

    deadline = 100
    patience = 30
    options = f"?consumer_timeout={ALLOWED}"

    @pytest.fixture(autouse=True)
    def _state(self) -> Iterator[None]:
        with Redis() as self.redis:
            yield

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    def app(self, work: Callable[[str], Awaitable[None]], *, delay: Literal["broker", "state"] = "broker") -> TaskMQ:
        """Build an app with a task `long` that does `work`."""
        assert self.process_url is not None
        app = TaskMQ(self.process_url, state=self.redis.url, delay=delay)
        app.task(name="long", result=False)(work)
        return app

    async def worker(self, app: TaskMQ, name: str, *, concurrency: int = 4, grace: float = 30) -> Worker:
        """Run a worker in this process until `stop`."""
        config = WorkerConfig(
            name=name, concurrency=concurrency, prefetch=concurrency * 2, lease=LEASE_SECONDS, grace=grace
        )
        worker = Worker(app, config)
        running = asyncio.create_task(worker.run())
        self.opened.push_async_callback(self._stop, worker, running)
        await asyncio.wait_for(worker.is_ready.wait(), self.patience)
        return worker

    async def _stop(self, worker: Worker, running: "asyncio.Task[None]") -> None:
        worker.requeue_now()
        await running

    async def leases(self) -> int:
        """Return the number of jobs handed over so far."""
        keys = await asyncio.to_thread(self.redis.command, "KEYS", "*handover:*")
        assert isinstance(keys, list)
        return len(keys)

    async def until_they_are(self, runs: list[str], expected: list[str]) -> None:
        """Wait until these have started, in any order."""

        async def started_jobs() -> list[str]:
            return sorted(runs)

        await eventually(started_jobs, expected, within=self.patience)

    async def count_unfinished(self) -> int:
        """Return the number of messages in all queues and delays, unacked or not, as of some seconds ago."""
        table = await asyncio.to_thread(self.server.ctl, "-q", "list_queues", "-p", self.vhost, "name", "messages")
        return sum(int(line.split("\t")[1]) for line in table.splitlines()[1:])


class TestHandover(HandoverCase):
    @case
    async def test_a_long_task_runs_once_and_no_other_job_is_disturbed(self) -> None:
        runs: list[str] = []

        async def work(name: str) -> None:
            runs.append(name)
            await asyncio.sleep(ALLOWED * 2.5 if name == "long" else 0.01)

        # Where delayed jobs wait makes no difference: keepers wait at the broker.
        app, other = self.app(work, delay="state"), self.app(work, delay="state")
        await self.worker(app, "a")
        await self.worker(other, "b")
        tasks = app.tasks["long"], other.tasks["long"]
        await tasks[0].asend("long")
        for number in range(round(ALLOWED * 2.5) + 3):
            await asyncio.sleep(1)
            await tasks[1].asend(f"quick {number}")

        await eventually(self.count_unfinished, 0, within=self.patience)
        assert sorted(runs) == sorted(["long", *(f"quick {number}" for number in range(round(ALLOWED * 2.5) + 3))])
        assert await self.leases() == 1
        assert "longer than the consumer timeout" not in self.log.text
        assert "may run for more than" not in self.log.text
        assert "runs again" not in self.log.text

    @pytest.mark.campaign
    @case
    async def test_a_long_task_without_a_state_runs_twice(self) -> None:
        runs: list[str] = []

        async def work(name: str) -> None:
            runs.append(name)
            await asyncio.sleep(ALLOWED * 2 if len(runs) == 1 else 0.01)

        assert self.process_url is not None
        app = TaskMQ(self.process_url)
        task = app.task(name="long", result=False)(work)
        await self.worker(app, "a")

        await task.asend("long")

        await self.until_they_are(runs, ["long", "long"])
        await eventually(self.count_unfinished, 0, within=self.patience)
        assert len(runs) == 2
        assert "may run for more than 0.1 minutes" in self.log.text

    @pytest.mark.campaign
    @case
    async def test_a_job_that_waits_for_a_slot_is_requeued_in_time(self) -> None:
        runs: list[str] = []

        async def work(name: str) -> None:
            runs.append(name)
            await asyncio.sleep(4)

        app = self.app(work)
        await self.worker(app, "a", concurrency=1)

        for name in "abcd":
            await app.tasks["long"].asend(name)

        await self.until_they_are(runs, ["a", "b", "c", "d"])
        await eventually(self.count_unfinished, 0, within=self.patience)
        assert len(runs) == 4
        assert "longer than the consumer timeout" not in self.log.text

    @pytest.mark.campaign
    @case
    async def test_a_job_returned_after_its_handover_runs_elsewhere_at_once(self) -> None:
        began: list[str] = []

        def app(name: str) -> TaskMQ:
            async def work(_: str) -> None:
                began.append(name)
                if name == "a":
                    await asyncio.Event().wait()

            return self.app(work)

        first = app("a")
        leaving = await self.worker(first, "a", grace=0)
        await first.tasks["long"].asend("job")
        await eventually(self.leases, 1, within=self.patience)
        await self.worker(app("b"), "b")

        leaving.requeue_now()

        await self.until_they_are(began, ["a", "b"])
        await eventually(self.count_unfinished, 0, within=self.patience)
        assert began == ["a", "b"]

    @pytest.mark.campaign
    @case
    async def test_a_state_down_for_longer_than_the_lease_changes_nothing_for_one_worker(self) -> None:
        runs: list[str] = []
        is_over = asyncio.Event()

        async def work(name: str) -> None:
            runs.append(name)
            await is_over.wait()

        app = self.app(work)
        await self.worker(app, "a")
        await app.tasks["long"].asend("job")
        await eventually(self.leases, 1, within=self.patience)

        await asyncio.to_thread(self.redis.kill)
        await asyncio.sleep(LEASE_SECONDS * 3)
        is_over.set()
        await asyncio.sleep(1)
        await asyncio.to_thread(self.redis.start)

        await eventually(self.count_unfinished, 0, within=self.patience)
        assert runs == ["job"]
        assert "renewing leases of long jobs failed" in self.log.text

    @pytest.mark.campaign
    @case
    async def test_with_a_state_down_a_keeper_is_neither_run_elsewhere_nor_lost(self) -> None:
        began: list[str] = []
        is_over = asyncio.Event()

        def app(name: str) -> TaskMQ:
            async def work(_: str) -> None:
                began.append(name)
                if name == "a":
                    await is_over.wait()

            return self.app(work)

        first = app("a")
        leaving = await self.worker(first, "a")
        await first.tasks["long"].asend("job")
        await eventually(self.leases, 1, within=self.patience)
        await asyncio.to_thread(self.redis.kill)
        await self.worker(app("b"), "b")
        # It accepts no more keepers, and continues its job.
        leaving.drain()
        await asyncio.sleep(LEASE_SECONDS * 3)
        assert began == ["a"]
        await asyncio.to_thread(self.redis.start)
        is_over.set()

        await eventually(self.count_unfinished, 0, within=self.patience)
        # Its lease had ended, so the first one at the state has the job.
        assert began in (["a"], ["a", "b"])

    @pytest.mark.nightly("tests/faults/test_worker_kills.py::test_a_task_of_a_killed_worker_soon_runs_elsewhere")
    @case
    async def test_the_job_of_a_killed_worker_runs_elsewhere_after_the_lease(self) -> None:
        began: list[str] = []

        async def work(name: str) -> None:
            began.append(name)

        with self.project() as (folder, process):
            async with TaskMQ(self.process_url) as sender:
                await sender.task(name="long")(work).asend("job")
            await eventually(self.leases, 1, within=self.patience)
            await self.worker(self.app(work), "b")
            await asyncio.sleep(LEASE_SECONDS * 2)
            assert began == []

            process.kill()
            process.wait()

            await self.until_they_are(began, ["job"])
            await eventually(self.count_unfinished, 0, within=self.patience)
            assert began == ["job"]
            assert "its worker died; running it again" in self.log.text
            assert len((folder / "ledger").read_text().split()) == 1

    @contextmanager
    def project(self) -> "Generator[tuple[Path, subprocess.Popen[bytes]]]":
        """Start a worker process in a folder."""
        (self.folder / "jobs.py").write_text(JOBS)
        environment = {**os.environ, "JOBS_URL": f"{self.process_url}", "JOBS_STATE": self.redis.url}
        command = [sys.executable, "-c", WORKER]
        process = subprocess.Popen(command, cwd=self.folder, env=environment)
        try:
            yield self.folder, process
        finally:
            process.kill()
            process.wait()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
