"""Schedulers killed (-9) and restarted while random graphs of dependent jobs run.

    TASKMQ_TEST_GRAPH_KILLS_GRAPHS: number of graphs (6), one after the other
    TASKMQ_TEST_GRAPH_KILLS_FROM: the seed of the first one (0)
    TASKMQ_TEST_GRAPH_KILLS_JOBS: number of jobs (200)
    TASKMQ_TEST_GRAPH_KILLS_EVERY: seconds between two kills (1.5)

Two schedulers, a worker, RabbitMQ and PostgreSQL, all of them real. Every job ends as the rules say, and a job with
an unmet dependency never reached the broker.
"""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobRecord
from taskmq.model.jobs.dependencies import DependencyCondition, after_upstream
from taskmq.model.states import JobState
from tests.faults.field import Commands, Process
from tests.servers.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

_GRAPHS: Final = int(os.environ.get("TASKMQ_TEST_GRAPH_KILLS_GRAPHS", "6"))
_FROM: Final = int(os.environ.get("TASKMQ_TEST_GRAPH_KILLS_FROM", "0"))
_JOBS: Final = int(os.environ.get("TASKMQ_TEST_GRAPH_KILLS_JOBS", "200"))
_EVERY: Final = float(os.environ.get("TASKMQ_TEST_GRAPH_KILLS_EVERY", "1.5"))
_CONDITIONS: Final[Sequence[DependencyCondition]] = ("succeeded", "succeeded", "succeeded", "ended", "failed")
_APP: Final = """
import os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")


@app.task(name="step", queue="steps", retry=None)
async def step(succeeds: bool) -> None:
    if not succeeds:
        raise ValueError("as planned")
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


@pytest.mark.timeout(3_600)
def test_graphs_end_as_their_rules_say_while_schedulers_are_killed(
    start: Callable[..., Process], amqp_url: str, job_store_url: str
) -> None:
    names = (f"scheduler-{number}" for number in itertools.count())
    schedulers = [start(next(names), "scheduler", "jobs:app") for _ in range(2)]
    worker = start("worker", "worker", "jobs:app", "-c", "50")
    kills = 0

    async def kill() -> None:
        nonlocal kills
        while True:
            await asyncio.sleep(_EVERY)
            schedulers.pop(0).signal(signal.SIGKILL)
            schedulers.append(start(next(names), "scheduler", "jobs:app"))
            kills += 1

    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, name="faults")

        @app.task(name="step", queue="steps", retry=None)
        async def step(succeeds: bool) -> None: ...

        async with app:
            killing = asyncio.create_task(kill())
            try:
                for seed in range(_FROM, _FROM + _GRAPHS):
                    await _play(app, step, random.Random(seed))
            finally:
                killing.cancel()
                await asyncio.wait({killing})

    began = time.monotonic()
    asyncio.run(main())
    print(f"\n{_GRAPHS} graphs of {_JOBS} jobs, {kills} schedulers killed, {time.monotonic() - began:.0f} s")
    assert kills >= 1
    # A newly started process would be ended by the signal itself.
    eventually(
        lambda: all("acquired partitions" in each.log for each in schedulers),
        "each scheduler holds a partition",
        within=timedelta(seconds=60),
    )
    for process in (*schedulers, worker):
        process.signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.log[-4000:]


async def _play(app: TaskMQ, step: Any, dice: random.Random) -> None:
    waits: dict[str, list[tuple[str, DependencyCondition]]] = {}
    succeeds: dict[str, bool] = {}
    for _ in range(_JOBS):
        upstream = dice.sample(list(waits), k=min(dice.choice((0, 1, 1, 2, 4)), len(waits)))
        depends_on = [(job_id, dice.choice(_CONDITIONS)) for job_id in upstream]
        plan = dice.random() < 0.75
        job = await app.jobs.asubmit(step, plan, depends_on=depends_on)
        waits[job.id], succeeds[job.id] = depends_on, plan
    found: dict[str, JobRecord] = {}
    for job_id in waits:
        while not (record := await app.jobs.aget(job_id)).state.is_final:
            await asyncio.sleep(0.05)
        found[job_id] = record
    for job_id, depends_on in waits.items():
        record = found[job_id]
        missed = {
            after
            for each, condition in depends_on
            if (after := after_upstream(condition, found[each].state)) is not None
        }
        if missed:
            assert record.state in missed, (job_id, record.state, missed)
            assert record.token == 0, f"{job_id} was dispatched with an unmet dependency"
        else:
            assert record.state is (JobState.SUCCEEDED if succeeds[job_id] else JobState.FAILED), (job_id, record)
