"""A worker killed while one of its runs is being preempted: the run starts again elsewhere, and nothing is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.states import JobState
from tests.faults.field import Commands

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


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.nightly("tests/integration/test_preemption.py::test_a_run_is_preempted_on_real_servers")
@pytest.mark.timeout(150)
def test_a_preempted_run_whose_worker_is_killed_starts_again(amqp_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    notes = tmp_path / "notes"
    notes.touch()

    async def scenario(start: Commands) -> None:
        app = TaskMQ(amqp_url, name="preemption", store=store)
        app.task(name="long", queue="work", preemptible=True, retry=None)(_long)
        app.task(name="urgent", queue="work", retry=None)(_urgent)
        async with app:
            await app.pools.aset("acme", min={"slots": 1})
            await app.pools.aset_policy("work", QueuePolicy(policy="fifo", preempt_after=0.0, preempt_grace=600.0))
            start("scheduler", "scheduler", "jobs:app")
            first = start("first", "worker", "jobs:app", "-c", "1")
            long = await app.jobs.asubmit("long")
            await _until(lambda: "begun" in notes.read_text())
            urgent = await app.jobs.asubmit("urgent", tenant="acme")
            await _until(lambda: "asked" in notes.read_text())

            first.kill()
            start("second", "worker", "jobs:app", "-c", "1")
            async with asyncio.timeout(_PATIENCE):
                while {(await app.jobs.aget(job.id)).state for job in (long, urgent)} != {JobState.SUCCEEDED}:
                    await asyncio.sleep(0.05)

            events = [event.kind for event in await app.jobs.ahistory(long.id)]
            assert events.count("preempt_requested") == 1
            assert (await app.jobs.aget(long.id)).attempt == 1

    with Commands(tmp_path, _JOBS, url=amqp_url, store=store) as start:
        asyncio.run(scenario(start))
    assert sorted(notes.read_text().split()) == ["asked", "begun", "begun", "urgent"]


async def _long() -> None: ...


async def _urgent() -> None: ...
