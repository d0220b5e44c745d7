"""Workers killed (-9) in the middle of parcels of stored jobs.

$TASKMQ_TEST_PARCEL_KILLS is the number of kills (default 6), each after 20 more parcels.
"""

import asyncio
import os
from collections import Counter
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from taskmq import TaskMQ
from taskmq.model.states import JobState
from tests.faults.field import Commands, Process
from tests.integration.parcel_scheduling import schedule_jobs
from tests.servers.waiting import until
from tests.unit.store_kit import Database

_KILLS: Final = int(os.environ.get("TASKMQ_TEST_PARCEL_KILLS", "6"))
_PARCELS: Final = 20
_BACKLOG: Final = 2_000
_SLOTS: Final = 100
_APP: Final = """
import os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], name="shop")
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="work", queue="work")
async def work(name: str) -> None:
    os.write(LEDGER, f"{name} {os.getpid()}\\n".encode())
"""

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.real_time,
    pytest.mark.slow,
    pytest.mark.nightly("tests/integration/test_cut_connections.py::test_cuts_under_load_lose_no_job_of_a_parcel"),
    pytest.mark.timeout(180 + 20 * _KILLS),
]


async def test_killed_workers_lose_no_job_of_a_parcel_and_charge_none(amqp_url: str, tmp_path: Path) -> None:
    database, workers_before, jobs = Database(), count(), count()
    killed, is_over = set[int](), asyncio.Event()

    async def submit(app: TaskMQ) -> None:
        """Keep jobs waiting."""
        while not is_over.is_set():
            if database.live < _BACKLOG:
                await app.jobs.asubmit_many("work", [(f"job-{next(jobs)}",) for _ in range(_BACKLOG)])
            await asyncio.sleep(0.01)

    with Commands(tmp_path, _APP, url=amqp_url) as start:

        def start_worker() -> Process:
            return start(f"worker-{next(workers_before)}", "worker", "jobs:app", "-c", str(_SLOTS))

        async with schedule_jobs(amqp_url, database) as (app, session):
            workers = [start_worker() for _ in range(2)]
            submitting = asyncio.create_task(submit(app))
            for _ in range(_KILLS):
                await until(workers[0].consumes)
                enough = session.parcels + _PARCELS
                await until(lambda enough=enough: session.parcels >= enough)  # type: ignore[misc]
                victim = workers.pop(0)
                killed.add(victim.inner_pid)
                workers.append(start_worker())
                await asyncio.to_thread(victim.kill)
            is_over.set()
            await submitting
            await until(lambda: database.live == 0, within=timedelta(minutes=3))

    submitted = next(jobs)
    runs = [line.split() for line in (tmp_path / "runs").read_text().splitlines()]
    survived = Counter(name for name, pid in runs if int(pid) not in killed)
    again = len(runs) - submitted
    print(f"\n{submitted} jobs, {session.parcels} parcels, {_KILLS} kills, {again} runs repeated")
    assert Counter((job.state, job.attempt) for job in database.jobs.values()) == {(JobState.SUCCEEDED, 1): submitted}
    assert {name for name, _ in runs} == {f"job-{number}" for number in range(submitted)}
    # Only jobs that a killed worker had in hand ran again.
    assert max(survived.values()) == 1
    assert again <= _KILLS * 4 * _SLOTS
