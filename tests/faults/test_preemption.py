"""A worker that is killed while one of its runs gives way: the run begins again elsewhere, and nothing is lost."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.states import JobState
from tests.faults.field import Process

pytestmark = pytest.mark.rabbitmq

_PATIENCE = 60.0
_JOBS = """
import asyncio, os
from pathlib import Path
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], name="preemption", store=os.environ["FAULTS_STORE"])


def note(text: str) -> None:
    with Path("notes").open("a") as file:
        file.write(text + "\\n")


@app.task(name="long", queue="work", preemptible=True, retry=None)
async def long() -> None:
    note("begun")
    if Path("notes").read_text().count("begun") > 1:
        return
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("asked")
        await asyncio.Event().wait()


@app.task(name="urgent", queue="work", retry=None)
async def urgent() -> None:
    note("urgent")
"""


class _Hosts:
    """A scheduler and one worker after the other, each a process."""

    def __init__(self, folder: Path, *, broker: str, store: str) -> None:
        self._folder = folder
        parts = (str(Path(__file__).parents[2] / part) for part in ("", "brokers", "contrib"))
        self._environment = {
            **os.environ,
            "FAULTS_URL": broker,
            "FAULTS_STORE": store,
            "PYTHONPATH": os.pathsep.join(parts),
        }
        self._processes: list[Process] = []
        (folder / "jobs.py").write_text(_JOBS)

    def start(self, name: str, *arguments: str) -> Process:
        process = Process(name, ("-m", "taskmq", *arguments), self._folder, self._environment)
        self._processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """The supervisor first, so that nothing replaces the worker."""
        for pid in dict.fromkeys((process.pid, process.inner_pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)

    def close(self) -> None:
        for process in self._processes:
            if not process.has_ended:
                self.kill(process)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(150)
def test_a_run_whose_worker_is_killed_while_it_gives_way_begins_again_and_both_jobs_end(
    amqp_url: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    hosts = _Hosts(tmp_path, broker=amqp_url, store=store)
    notes = tmp_path / "notes"
    notes.touch()

    async def scenario() -> None:
        app = TaskMQ(amqp_url, name="preemption", store=store)
        app.task(name="long", queue="work", preemptible=True, retry=None)(_long)
        app.task(name="urgent", queue="work", retry=None)(_urgent)
        async with app:
            await app.pools.aset("acme", min={"slots": 1})
            await app.pools.aset_policy("work", QueuePolicy(policy="fifo", preempt_after=0.0, preempt_grace=600.0))
            hosts.start("scheduler", "scheduler", "jobs:app")
            first = hosts.start("first", "worker", "jobs:app", "-c", "1")
            long = await app.jobs.asubmit("long")
            await _until(lambda: "begun" in notes.read_text())
            urgent = await app.jobs.asubmit("urgent", tenant="acme")
            await _until(lambda: "asked" in notes.read_text())

            hosts.kill(first)
            hosts.start("second", "worker", "jobs:app", "-c", "1")
            async with asyncio.timeout(_PATIENCE):
                while {(await app.jobs.aget(job.id)).state for job in (long, urgent)} != {JobState.SUCCEEDED}:
                    await asyncio.sleep(0.05)

            events = [event.kind for event in await app.jobs.ahistory(long.id)]
            assert events.count("preempt_requested") == 1
            assert (await app.jobs.aget(long.id)).attempt == 1

    try:
        asyncio.run(scenario())
        assert sorted(notes.read_text().split()) == ["asked", "begun", "begun", "urgent"]
    finally:
        hosts.close()


async def _long() -> None: ...


async def _urgent() -> None: ...
