"""Connections of workers cut every two seconds under full load, and RabbitMQ restarted twice.

$TASKMQ_TEST_PARCEL_CUTS is the number of cuts (default 10).
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar, cast

import pytest

from taskmq import TaskMQ
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.migrations import upgrade
from tests.faults.nursery import Nursery
from tests.servers import PostgreSQL, RabbitMQ, TcpProxy
from tests.servers.errors import ServerFailed
from tests.servers.waiting import eventually

_CUTS: Final = int(os.environ.get("TASKMQ_TEST_PARCEL_CUTS", "10"))
_PERIOD: Final = 2.0
_WORKERS: Final = 2
_SLOTS: Final = 100
_BACKLOG: Final = 5_000
_LIVE: Final = frozenset(JobState) - TERMINAL - {JobState.UNKNOWN}
_APP: Final = """
import itertools, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
NUMBERS = itertools.count()


@app.task(name="work", queue="work", retry=None)
async def work(name: str) -> str:
    run = f"{name} {os.getpid()}-{next(NUMBERS)}"
    os.write(LEDGER, f"{run}\\n".encode())
    return run
"""
# The jobs that all workers have at a time.
_IN_HAND: Final = _WORKERS * 1_000

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.real_time,
    pytest.mark.slow,
    pytest.mark.nightly("tests/integration/test_cut_connections.py::test_cuts_under_load_lose_no_job_of_a_parcel"),
    pytest.mark.timeout(240 + 6 * _CUTS),
]

T = TypeVar("T")


def test_cut_workers_and_a_restarted_broker_charge_no_job_and_repeat_those_in_hand(tmp_path: Path) -> None:
    with ExitStack() as stack:
        node, postgres = stack.enter_context(RabbitMQ()), stack.enter_context(PostgreSQL())
        proxy = stack.enter_context(TcpProxy(node.port))
        asyncio.run(upgrade(postgres.url))
        through = node.url.replace(f":{node.port}", f":{proxy.port}")
        folders = [tmp_path / each for each in ("schedulers", "workers")]
        for folder in folders:
            folder.mkdir()
        schedulers, workers = (
            stack.enter_context(Nursery(folder, _APP, url=url, store=postgres.url))
            for folder, url in zip(folders, (node.url, through), strict=True)
        )
        schedulers.start_scheduler("scheduler")
        working = [
            workers.start_worker(f"worker-{number}", queues=("work",), concurrency=_SLOTS)
            for number in range(_WORKERS)
        ]
        eventually(lambda: all(each.consumes() for each in working), "the workers consume")
        began = time.monotonic()
        submitted = asyncio.run(_play(node, proxy, postgres))
        taken = time.monotonic() - began
        queues = {each["name"] for each in cast("list[dict[str, str]]", node.http("GET", "/api/queues"))}
        ends = postgres.sql("select state, attempt, error_type, count(*) from taskmq.job_history group by 1, 2, 3")
        results = postgres.sql("select convert_from(result, 'utf8') from taskmq.job_history")

    runs = (folders[1] / "runs").read_text().splitlines()
    by_job: dict[str, list[str]] = {}
    for run in runs:
        by_job.setdefault(run.split()[0], []).append(run)
    accepted = {run.split()[0]: run for run in (line.strip('"') for line in results.splitlines())}
    later = sum(accepted[name] != each[0] for name, each in by_job.items())
    again = len(runs) - submitted
    print(
        f"\n{submitted:,} jobs, {_CUTS} cuts, 2 restarts, {taken:.0f} s; {again} runs repeated, "
        f"of {later} jobs the second was accepted"
    )
    assert "work.parcels" in queues
    assert again > 0
    assert ends == f"{CODES[JobState.SUCCEEDED]}|1||{submitted}"
    assert by_job.keys() == accepted.keys()
    assert all(accepted[name] in each for name, each in by_job.items())
    assert again <= (_CUTS + 2) * _IN_HAND


async def _play(node: RabbitMQ, proxy: TcpProxy, postgres: PostgreSQL) -> int:
    """Submit jobs while the connections are cut; return how many, after all have ended."""
    app = TaskMQ(node.url, store=postgres.url, name="faults")

    async def takes(name: str) -> str:
        return name

    app.task(name="work", queue="work", retry=None)(takes)
    numbers, submitted, is_over = itertools.count(), 0, asyncio.Event()

    async with app:

        async def submit() -> None:
            nonlocal submitted
            while not is_over.is_set():
                if await count() < _BACKLOG:
                    calls = [(f"job-{next(numbers)}",) for _ in range(_BACKLOG)]
                    submitted += len(await app.jobs.asubmit_many("work", calls))
                await asyncio.sleep(0.05)

        async def count() -> int:
            return await _persist(lambda: app.sessions.store().count_jobs(JobFilter(states=_LIVE)))

        submitting = asyncio.create_task(submit())
        for cut in range(1, _CUTS + 1):
            await asyncio.sleep(_PERIOD)
            proxy.cut()
            if cut in {_CUTS // 3, 2 * _CUTS // 3}:
                await asyncio.to_thread(_restart, node)
        is_over.set()
        await submitting
        async with asyncio.timeout(180):
            while await count():
                await asyncio.sleep(0.2)
    return submitted


def _restart(node: RabbitMQ) -> None:
    """Kill it and start it again, which takes minutes on a machine with other work."""
    node.kill()
    node.launch()
    for _ in range(3):
        with contextlib.suppress(ServerFailed):
            return node.wait_until_ready()
    return node.wait_until_ready()


async def _persist(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.1)
