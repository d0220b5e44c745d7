"""Saved steps and checkpoints of stored jobs, while workers, schedulers and PostgreSQL are killed (-9) at any time.

RabbitMQ and PostgreSQL, no state. Each task records outside what it runs and what was confirmed to it. The small
test kills no database, and its only worker twice. In the large one:

$TASKMQ_TEST_SAVED_KILLS    kills (default 1,000)
$TASKMQ_TEST_SAVED_JOBS     jobs of each kind at a time (default 60): those of a killed worker wait for 25 s
$TASKMQ_TEST_SAVED_WORKERS  worker processes (default 6)
"""

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from taskmq import TaskMQ
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.migrations import upgrade
from tests.faults.nursery import Forked, Nursery
from tests.servers import PostgreSQL

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

T = TypeVar("T")

_APP: Final = """
import asyncio, os
from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
NAP = float(os.environ["FAULTS_NAP"])
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(LEDGER, (" ".join(map(str, words)) + "\\n").encode())


def make(name: str, number: int, size: int) -> str:
    note("run", name, number)
    return "x" * size


async def amake(name: str, number: int, size: int) -> str:
    await asyncio.sleep(NAP)
    return make(name, number, size)


@app.task(name="coroutine", queue="work", retry=None)
async def coroutine(ctx: Context, name: str, sizes: list[int]) -> int:
    total = 0
    for number, size in enumerate(sizes):
        total += len(await ctx.astep(f"part {number}", amake, name, number, size))
        note("saved", name, number)
    return total


@app.task(name="process", queue="apart", retry=None, executor="process")
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
        await asyncio.sleep(NAP)
        await ctx.acheckpoint({"next": number + 1, "fill": "x" * sizes[number]})
        note("at", name, number + 1)
    return sum(sizes)
"""
_QUEUES: Final = {"coroutine": "work", "process": "apart", "loop": "work"}
_JOBS: Final = int(os.environ.get("TASKMQ_TEST_SAVED_JOBS", "60"))
_KILLS: Final = int(os.environ.get("TASKMQ_TEST_SAVED_KILLS", "1000"))
_WORKERS: Final = int(os.environ.get("TASKMQ_TEST_SAVED_WORKERS", "6"))


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/reports/journals.py::test_only_the_last_run_to_begin_saves_values"
)
@pytest.mark.timeout(300)
def test_each_run_begins_at_the_last_confirmed_value_after_a_few_kills(
    amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    with Nursery(tmp_path, _APP, url=amqp_url, store=job_store_url, nap="0.1") as nursery:
        _Campaign(nursery, tmp_path / "runs", seed=7, workers=1, jobs=3).play(amqp_url, job_store_url, kills=3)

    _check(tmp_path / "runs")


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/reports/journals.py::test_only_the_last_run_to_begin_saves_values"
)
@pytest.mark.timeout(900 + 10 * _KILLS)
def test_each_run_begins_at_the_last_confirmed_value_after_a_thousand_kills(amqp_url: str, tmp_path: Path) -> None:
    with PostgreSQL() as postgres:
        asyncio.run(upgrade(postgres.url))
        with Nursery(tmp_path, _APP, url=amqp_url, store=postgres.url, nap="0.5") as nursery:
            campaign = _Campaign(
                nursery, tmp_path / "runs", seed=int(time.time()), workers=_WORKERS, jobs=_JOBS, postgres=postgres
            )
            campaign.play(amqp_url, postgres.url, kills=_KILLS)

    _check(tmp_path / "runs")


class _Campaign:
    """Jobs that run until that many processes were killed, and end.

    Args:
        ledger: file of the tasks.
        jobs: of each kind at a time.
        postgres: is killed as well.
    """

    def __init__(
        self,
        nursery: Nursery,
        ledger: Path,
        *,
        seed: int,
        workers: int,
        jobs: int,
        postgres: PostgreSQL | None = None,
    ) -> None:
        self._nursery = nursery
        self._ledger = ledger
        self._jobs = jobs
        self._postgres = postgres
        self._dice = random.Random(seed)
        self._numbers = itertools.count()
        self._kills: Counter[str] = Counter()
        self._lines = 0
        self._read = 0
        self._schedulers = [nursery.start_scheduler(f"scheduler-{next(self._numbers)}") for _ in range(2)]
        # One of them also has the tasks in processes, whose start costs a second of processor time.
        self._queues = [("work", "apart"), *[("work",)] * (workers - 1)]
        self._workers = [self._start_worker(queues) for queues in self._queues]

    def _start_worker(self, queues: tuple[str, ...]) -> Forked:
        name = f"worker-{next(self._numbers)}"
        return self._nursery.start_worker(name, queues=queues, concurrency=16, max_crashes=0)

    def play(self, url: str, store_url: str, *, kills: int) -> None:
        asyncio.run(self._play(url, store_url, kills))
        print(f"\n{dict(self._kills)}")

    async def _play(self, url: str, store_url: str, kills: int) -> None:
        app = TaskMQ(url, store=store_url, name="faults")

        async def takes(name: str, sizes: list[int]) -> int:
            return 0

        for kind, queue in _QUEUES.items():
            app.task(name=kind, queue=queue, retry=None)(takes)
        async with app:
            count = app.sessions.store().count_jobs
            expected: dict[str, int] = {}
            killing = asyncio.create_task(self._kill(kills))
            while not killing.done():
                live = await _persist(lambda: count(JobFilter(states=_LIVE)))
                for kind in list(_QUEUES) * max(self._jobs - live // len(_QUEUES), 0):
                    sizes = _sizes(self._dice, of_one=kind == "loop")
                    name = f"{kind}-{len(expected)}"
                    await _persist(lambda: app.jobs.asubmit(kind, name, sizes, job_id=name))  # noqa: B023 - at once
                    expected[name] = sum(sizes)
                await asyncio.sleep(0.1)
            await killing
            async with asyncio.timeout(480):
                while await _persist(lambda: count(JobFilter(states=_LIVE))):
                    await asyncio.sleep(0.2)
            for job_id, size in expected.items():
                outcome = await app.job(job_id).aoutcome(timeout=10)
                assert (outcome.state, outcome.error) == (JobState.SUCCEEDED, None)
                assert outcome.result() == size

    async def _kill(self, kills: int) -> None:
        """Kill one process after the other, each in the middle of any step."""
        # A loop has begun: the kills have to interrupt some.
        while not self._ledger.exists() or b"\nat " not in self._ledger.read_bytes():
            await asyncio.sleep(0.02)
        began = time.monotonic()
        while self._kills.total() < kills:
            lines = self._count_lines() + self._dice.randint(1, 4)
            while self._count_lines() < lines:
                await asyncio.sleep(0.02)
            self._kill_one()
            if not self._kills.total() % 50:
                print(f"{self._kills.total()} kills, {lines} lines, {time.monotonic() - began:.0f} s", flush=True)

    def _kill_one(self) -> None:
        chance = self._dice.random()
        if self._postgres is not None and chance < 0.03:
            self._postgres.kill()
            self._postgres.start()
            self._kills["postgres"] += 1
        elif chance < 0.12 or self._kills.total() == 1:
            # Each lives long enough to miss a worker.
            self._schedulers.pop(0).kill()
            self._schedulers.append(self._nursery.start_scheduler(f"scheduler-{next(self._numbers)}"))
            self._kills["scheduler"] += 1
        elif consuming := [index for index, each in enumerate(self._workers) if each.consumes()]:
            index = self._dice.choice(consuming)
            self._workers[index].kill()
            self._workers[index] = self._start_worker(self._queues[index])
            self._kills["worker"] += 1

    def _count_lines(self) -> int:
        if self._ledger.exists():
            with self._ledger.open("rb") as ledger:
                ledger.seek(self._read)
                part = ledger.read()
            self._read += len(part)
            self._lines += part.count(b"\n")
        return self._lines


async def _persist(call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to the call, which is made again while the store is down."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.1)


_LIVE: Final = frozenset(JobState) - TERMINAL - {JobState.UNKNOWN}


def _sizes(dice: random.Random, *, of_one: bool) -> list[int]:
    """Return sizes of 1 KB to 8 MB; without `of_one` they fit into one job together."""
    if of_one and dice.random() < 0.2:
        return [int(1_000 * 8_000 ** dice.random()) for _ in range(12)]
    sizes = [int(1_000 * 100 ** dice.random()) for _ in range(12)]
    if dice.random() < 0.2:
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
