"""Limits, keys and order of stored jobs while a scheduler is killed (-9).

RabbitMQ and PostgreSQL, both real. Each run records its begin and end outside.
`$TASKMQ_TEST_CLAIMED_JOBS` jobs of each queue and account (default 6), `$TASKMQ_TEST_CLAIM_KILLS` kills (default 1).
"""

import asyncio
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq import Concurrency, Job, RetryPolicy, TaskMQ, WorkQueue
from taskmq.contracts.jobs import partition_of
from tests.faults.field import Commands, Process

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

_JOBS: Final = int(os.environ.get("TASKMQ_TEST_CLAIMED_JOBS", "6"))
_KILLS: Final = int(os.environ.get("TASKMQ_TEST_CLAIM_KILLS", "1"))
_COPIES: Final = 40
_QUEUES: Final = ("work", "other-1", "other-2")
_ACCOUNTS: Final = ("north", "south")
_APP: Final = """
import asyncio, os, time
from taskmq import Concurrency, Context, RetryPolicy, TaskMQ, WorkQueue

app = TaskMQ(
    os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults", queues=[WorkQueue("line", ordered=2)]
)
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
accounts = Concurrency(1, key=lambda account, number: account.lower(), name="accounts")


async def book(account: str, number: int) -> None:
    began = time.monotonic_ns()
    await asyncio.sleep(0.02)
    os.write(LEDGER, f"{account} {number} {began} {time.monotonic_ns()}\\n".encode())


for queue in ("work", "other-1", "other-2"):
    app.task(name=f"book-{queue}", queue=queue, retry=None, concurrency=accounts)(book)


@app.task(name="pay", queue="work", idempotency_key="order")
async def pay(context: Context, order: str) -> int:
    began = time.monotonic_ns()
    await asyncio.sleep(0.2)
    os.write(LEDGER, f"{order} {context.fencing_token} {began} {time.monotonic_ns()}\\n".encode())
    return context.fencing_token


@app.task(name="step", queue="line", order_key="account", retry=RetryPolicy(base="100ms", max_attempts=3))
async def step(context: Context, account: str, number: int) -> None:
    began = time.monotonic_ns()
    await asyncio.sleep(0.02)
    os.write(LEDGER, f"{account} {number} {began} {time.monotonic_ns()}\\n".encode())
    if account == "south" and number % 3 == 0 and context.attempt == 1:
        raise ValueError(number)
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


async def _kill_between(jobs: Sequence[Job[Any]], schedulers: list[Process], start: Callable[..., Process]) -> None:
    """Kill one scheduler after the other while the jobs run, and wait for the ends of all jobs."""
    began = time.monotonic()
    for number in range(_KILLS):
        await jobs[len(jobs) * (number + 1) // (_KILLS + 2)].aresult(timeout=120)
        schedulers.pop(0).signal(signal.SIGKILL)
        schedulers.append(start(f"scheduler-{len(schedulers) + 1 + number}", "scheduler", "jobs:app"))
    for job in jobs:
        await job.aresult(timeout=120)
    print(f"\n{len(jobs):,} jobs, {_KILLS} schedulers killed: {time.monotonic() - began:.0f} s")


def _expect_no_overlap(runs: Sequence[tuple[int, int, int]], again: frozenset[int]) -> None:
    """Check that no run overlaps another, except the other run of a job whose message was published twice.

    Args:
        runs: begin, end and number of each run, in order.
        again: jobs that run twice because they are retried.
    """
    counts = Counter(number for _, _, number in runs)
    twice = {number for number, count in counts.items() if count > 1 + (number in again)}
    overlaps = [(one, other) for one, other in pairwise(runs) if one[1] > other[0]]
    print(f"{len(runs)} runs, {len(twice)} jobs published twice, {len(overlaps)} overlaps")
    assert all(one[2] == other[2] and one[2] in twice for one, other in overlaps), overlaps


@pytest.mark.timeout(240 + 60 * _KILLS)
def test_runs_of_one_claim_never_overlap_and_the_work_of_a_key_is_done_once(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    assert len({partition_of(queue) for queue in _QUEUES}) == len(_QUEUES)
    schedulers = [start(f"scheduler-{number}", "scheduler", "jobs:app") for number in range(2)]
    workers = [start(f"worker-{number}", "worker", "jobs:app", "-c", "8") for number in range(2)]

    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, name="faults")
        shared = Concurrency(1, key=lambda account, number: account.lower(), name="accounts")

        async def book(account: str, number: int) -> None: ...

        books = [
            app.task(name=f"book-{queue}", queue=queue, retry=None, concurrency=shared)(book) for queue in _QUEUES
        ]

        @app.task(name="pay", queue="work", idempotency_key="order")
        async def pay(order: str) -> int:
            return 0

        async with app:
            paid = [await app.jobs.asubmit(pay, "order-7") for _ in range(_COPIES)]
            booked = [
                await app.jobs.asubmit(task, account, _JOBS * index + number)
                for number in range(_JOBS)
                for index, task in enumerate(books)
                for account in _ACCOUNTS
            ]
            await _kill_between(booked, schedulers, start)
            assert len({await job.aresult(timeout=60) for job in paid}) == 1

    asyncio.run(main())

    runs: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for line in (tmp_path / "runs").read_text().splitlines():
        claim, number, began, ended = line.split()
        runs[claim].append((int(began), int(ended), number))
    assert len(runs.pop("order-7")) == 1
    assert runs.keys() == set(_ACCOUNTS)
    for its in map(sorted, runs.values()):
        assert {number for _, _, number in its} == {str(number) for number in range(_JOBS * len(_QUEUES))}
        _expect_no_overlap([(began, ended, int(number)) for began, ended, number in its], frozenset())
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.log[-4000:]


@pytest.mark.timeout(240 + 60 * _KILLS)
def test_stored_jobs_of_a_key_never_overlap_or_overtake_each_other(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    schedulers = [start(f"scheduler-{number}", "scheduler", "jobs:app") for number in range(2)]
    workers = [start(f"worker-{number}", "worker", "jobs:app", "-c", "8") for number in range(2)]
    count = 3 * _JOBS

    async def main() -> None:
        queues = [WorkQueue("line", ordered=2)]
        app = TaskMQ(amqp_url, store=job_store_url, name="faults", queues=queues)

        @app.task(name="step", queue="line", order_key="account", retry=RetryPolicy(base="100ms", max_attempts=3))
        async def step(account: str, number: int) -> None: ...

        async with app:
            jobs = [await app.jobs.asubmit(step, account, number) for number in range(count) for account in _ACCOUNTS]
            await _kill_between(jobs, schedulers, start)

    asyncio.run(main())

    runs: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for line in (tmp_path / "runs").read_text().splitlines():
        account, number, began, ended = line.split()
        runs[account].append((int(began), int(ended), int(number)))
    for account, its in runs.items():
        its.sort()
        # The next holder of a partition may publish a job again, which then runs once more.
        numbers = [number for _, _, number in its]
        assert list(dict.fromkeys(numbers)) == list(range(count))
        again = [number for number in range(count) if account == "south" and number % 3 == 0]
        assert all(numbers.count(number) > 1 for number in again)
        _expect_no_overlap(its, frozenset(again))
    assert runs.keys() == set(_ACCOUNTS)
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.log[-4000:]
