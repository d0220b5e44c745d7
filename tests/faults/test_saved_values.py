"""Saved steps and checkpoints of stored jobs, while workers and schedulers are killed (-9) between them.

RabbitMQ and PostgreSQL, no state. Each task records outside what it runs and what was confirmed to it.
`$TASKMQ_TEST_SAVED_JOBS` jobs of each kind, and `$TASKMQ_TEST_SAVED_KILLS` kills in the nightly test.
"""

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from taskmq import TaskMQ
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from tests.faults.field import Commands, Process
from tests.servers.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

_APP: Final = """
import asyncio, os
from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(LEDGER, (" ".join(map(str, words)) + "\\n").encode())


def make(name: str, number: int, size: int) -> str:
    note("run", name, number)
    return "x" * size


async def amake(name: str, number: int, size: int) -> str:
    await asyncio.sleep(0.05)
    return make(name, number, size)


@app.task(name="coroutine", queue="work", retry=None)
async def coroutine(ctx: Context, name: str, sizes: list[int]) -> int:
    total = 0
    for number, size in enumerate(sizes):
        total += len(await ctx.astep(f"part {number}", amake, name, number, size))
        note("saved", name, number)
    return total


@app.task(name="process", queue="work", retry=None, executor="process")
def process(ctx: Context, name: str, sizes: list[int]) -> int:
    total = 0
    for number, size in enumerate(sizes):
        total += len(ctx.step(f"part {number}", make, name, number, size))
        note("saved", name, number)
    return total


@app.task(name="loop", queue="work", retry=None)
async def loop(ctx: Context, name: str, sizes: list[int]) -> int:
    await ctx.resume()
    first = 0 if ctx.last_checkpoint is None else ctx.last_checkpoint["next"]
    note("from", name, first)
    for number in range(first, len(sizes)):
        await asyncio.sleep(0.05)
        await ctx.acheckpoint({"next": number + 1, "fill": "x" * sizes[number]})
        note("at", name, number + 1)
    return sum(sizes)
"""
_KINDS: Final = ("coroutine", "process", "loop")
_JOBS: Final = int(os.environ.get("TASKMQ_TEST_SAVED_JOBS", "3"))
_KILLS: Final = int(os.environ.get("TASKMQ_TEST_SAVED_KILLS", "1000"))
_WORKERS: Final = 3


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


@pytest.mark.timeout(600)
def test_each_run_begins_at_the_last_confirmed_value_after_a_few_kills(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    _play(start, amqp_url, job_store_url, tmp_path / "runs", kills=3, seed=7)

    _check(tmp_path / "runs")


@pytest.mark.nightly(
    "tests/faults/test_saved_values.py::test_each_run_begins_at_the_last_confirmed_value_after_a_few_kills"
)
@pytest.mark.timeout(7_200)
def test_each_run_begins_at_the_last_confirmed_value_after_a_thousand_kills(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    _play(start, amqp_url, job_store_url, tmp_path / "runs", kills=_KILLS, seed=int(time.time()))

    _check(tmp_path / "runs")


def _play(start: Callable[..., Process], url: str, store_url: str, ledger: Path, *, kills: int, seed: int) -> None:
    """Keep jobs running until that many processes were killed, and wait for their ends."""
    dice = random.Random(seed)
    numbers = itertools.count()

    def start_scheduler() -> Process:
        return start(f"scheduler-{next(numbers)}", "scheduler", "jobs:app")

    def start_worker() -> Process:
        return start(f"worker-{next(numbers)}", "worker", "jobs:app", "-c", "8", "--max-crashes", "0")

    schedulers = [start_scheduler() for _ in range(2)]
    # A scheduler that heard a worker misses it after 25 s; otherwise, after a minute or more.
    eventually(lambda: all("acquired partitions" in each.log for each in schedulers), "both schedulers hear workers")
    workers = [start_worker() for _ in range(_WORKERS)]
    left = kills

    async def kill() -> None:
        nonlocal left
        while left:
            # In the middle of any step.
            lines = _lines(ledger) + dice.randint(1, 10)
            while _lines(ledger) < lines:
                await asyncio.sleep(0.02)
            if dice.random() < 0.75:
                workers.remove(victim := dice.choice([each for each in workers if each.consumes()]))
                workers.append(start_worker())
            else:
                victim = schedulers.pop(0)
                schedulers.append(start_scheduler())
            await asyncio.to_thread(victim.kill)
            left -= 1

    async def main() -> None:
        app = TaskMQ(url, store=store_url, name="faults")

        async def takes(name: str, sizes: list[int]) -> int:
            return 0

        for kind in _KINDS:
            app.task(name=kind, queue="work", retry=None)(takes)
        async with app:
            count = app.sessions.store().count_jobs
            expected: dict[str, int] = {}
            killing = asyncio.create_task(kill())
            while not killing.done():
                if await count(JobFilter(states=_LIVE)) < _JOBS * len(_KINDS):
                    for kind in _KINDS:
                        sizes = _sizes(dice, of_one=kind == "loop")
                        job = await app.jobs.asubmit(kind, f"{kind}-{len(expected)}", sizes)
                        expected[job.id] = sum(sizes)
                await asyncio.sleep(0.1)
            await killing
            async with asyncio.timeout(480):
                while await count(JobFilter(states=_LIVE)):
                    await asyncio.sleep(0.2)
            for job_id, size in expected.items():
                outcome = await app.job(job_id).aoutcome(timeout=10)
                assert (outcome.state, outcome.error) == (JobState.SUCCEEDED, None)
                assert outcome.result() == size

    asyncio.run(main())


def _lines(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


_LIVE: Final = frozenset(JobState) - TERMINAL - {JobState.UNKNOWN}


def _sizes(dice: random.Random, *, of_one: bool) -> list[int]:
    """Return sizes of 1 KB to 8 MB; without `of_one` they fit into one job together."""
    if of_one:
        return [int(1_000 * 8_000 ** dice.random()) for _ in range(12)]
    sizes = [int(1_000 * 100 ** dice.random()) for _ in range(12)]
    sizes[dice.randrange(12)] = dice.choice([1_000_000, 4_000_000, 7_000_000])
    return sizes


def _check(ledger: Path) -> None:
    confirmed: set[tuple[str, str]] = set()
    at: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    for line in ledger.read_text().splitlines():
        word, name, number = line.split()
        if word == "saved":
            confirmed.add((name, number))
        elif word == "run":
            assert (name, number) not in confirmed, f"{name} ran its confirmed step {number} again"
        elif word == "at":
            at[name] = int(number)
        else:
            begun[name] += 1
            assert int(number) >= at[name], f"{name} began at {number} after {at[name]} was confirmed"
    print(f"\n{len(confirmed)} steps, {begun.total()} runs of {len(begun)} loops")
    assert begun.total() > len(begun)
    assert confirmed
