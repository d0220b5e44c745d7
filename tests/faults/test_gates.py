"""Limits of stored jobs over two workers, while the scheduler that enforces them is killed (-9).

RabbitMQ, Redis and PostgreSQL, all of them real. Each run records its begin and end outside.
`$TASKMQ_TEST_GATED_JOBS` jobs of each of two keys (default 12).
"""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from taskmq import Concurrency, TaskMQ
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import UNDERWAY, JobState
from tests.faults.field import Commands, Process

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

_JOBS: Final = int(os.environ.get("TASKMQ_TEST_GATED_JOBS", "12"))
_KEYS: Final = ("north", "south")
_APP: Final = """
import asyncio, os, time
from taskmq import Concurrency, TaskMQ

app = TaskMQ(
    os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], state=os.environ["FAULTS_STATE"], name="faults"
)
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="step", queue="steps", retry=None, concurrency=Concurrency(1, key="region"))
async def step(region: str, number: int) -> None:
    began = time.monotonic_ns()
    await asyncio.sleep(0.02)
    os.write(LEDGER, f"{region} {number} {began} {time.monotonic_ns()}\\n".encode())
"""


@pytest.fixture
def start(amqp_url: str, redis_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url, state=redis_url) as started:
        yield started


@pytest.mark.timeout(240)
def test_one_job_per_key_is_in_progress_at_a_time_while_the_scheduler_is_killed(
    start: Callable[..., Process], amqp_url: str, redis_url: str, job_store_url: str, tmp_path: Path
) -> None:
    scheduler = start("scheduler-0", "scheduler", "jobs:app")
    workers = [start(f"worker-{number}", "worker", "jobs:app", "-c", "8") for number in range(2)]

    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, state=redis_url, name="faults")

        @app.task(name="step", queue="steps", retry=None, concurrency=Concurrency(1, key="region"))
        async def step(region: str, number: int) -> None: ...

        async with app:
            jobs = [await app.jobs.asubmit(step, region, number) for number in range(_JOBS) for region in _KEYS]
            store = app.sessions.store()
            is_killed = False
            async with asyncio.timeout(180):
                while (ended := await store.count_jobs(JobFilter(states=frozenset({JobState.SUCCEEDED})))) < len(
                    jobs
                ):
                    assert await store.count_jobs(JobFilter(states=UNDERWAY)) <= len(_KEYS)
                    if ended >= len(jobs) // 3 and not is_killed:
                        is_killed = True
                        scheduler.signal(signal.SIGKILL)
                        start("scheduler-1", "scheduler", "jobs:app")
                    await asyncio.sleep(0.01)
            assert is_killed
            # None was sent back, unless an unconfirmed message was published twice and ran in the meantime.
            dispatches = [(await app.jobs.aget(job.id)).token >> 32 for job in jobs]
            assert sum(count > 1 for count in dispatches) <= len(_KEYS), dispatches

    asyncio.run(main())

    runs: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for line in (tmp_path / "runs").read_text().splitlines():
        region, number, began, ended = line.split()
        runs[region].append((int(began), int(ended), number))
    for region in _KEYS:
        its = sorted(runs[region])
        assert {number for _, _, number in its} == {str(number) for number in range(_JOBS)}
        assert all(before[1] <= after[0] for before, after in pairwise(its)), its
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.log[-4000:]
