"""Runs of a workflow with `max_active_runs` while its workers and schedulers are killed (-9).

$TASKMQ_TEST_PLACE_RUNS   runs (default 6)
$TASKMQ_TEST_PLACE_KILLS  killed processes (default 3)

Each run has two steps, which write to a ledger when they begin and end. RabbitMQ and PostgreSQL, no state.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from taskmq import TaskMQ
from tests.faults.field import Commands, Process

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.real_time]

RUNS: Final = int(os.environ.get("TASKMQ_TEST_PLACE_RUNS", "6"))
KILLS: Final = int(os.environ.get("TASKMQ_TEST_PLACE_KILLS", "3"))
PLACES: Final = 2

_PATIENCE: Final = 600.0
_LINES: Final = 4
_APP: Final = f"""
import asyncio, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="step", queue="work", retry=None)
async def step(number: int) -> int:
    os.write(LEDGER, f"{{number}}\\n".encode())
    await asyncio.sleep(0.05)
    os.write(LEDGER, f"{{number}}\\n".encode())
    return number


@app.workflow(name="limited", queue="work", max_active_runs={PLACES})
def limited(number: int):
    return step.si(number) | step.si(number)
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/runs/places.py::test_no_more_runs_than_places_begin_whoever_advances_them"
)
@pytest.mark.timeout(_PATIENCE + 60)
def test_no_more_runs_than_places_are_active_while_their_processes_are_killed(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, tmp_path: Path
) -> None:
    ledger, chance = tmp_path / "runs", random.Random(9)
    ledger.touch()

    def begin(what: str) -> Process:
        return start(what, what, "jobs:app", *(("--max-crashes", "0") if what == "worker" else ()))

    def kill_one() -> None:
        index = chance.randrange(len(processes))
        processes[index].kill()
        processes[index] = begin(processes[index].name)

    async def main() -> list[int]:
        async with TaskMQ(amqp_url, store=job_store_url, name="faults") as app, asyncio.timeout(_PATIENCE):
            # A scheduler stores the workflow before it acquires partitions.
            while "acquired partitions" not in processes[-1].log:
                await asyncio.sleep(0.05)
            runs = [await app.runs.astart("limited", {"number": number}) for number in range(RUNS)]
            for number in range(KILLS):
                # Spread over the whole work.
                while len(_read(ledger)) < RUNS * _LINES * number // KILLS:
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(kill_one)
            assert [await run.aresult(_PATIENCE) for run in runs] == [*range(RUNS)]
            records = [await run.aget() for run in runs]
            return sorted(range(RUNS), key=lambda number: (records[number].created, records[number].id))

    processes = [begin(what) for what in ("worker", "worker", "scheduler", "scheduler")]
    order = asyncio.run(main())
    _check_places(_read(ledger), order)


def _read(ledger: Path) -> list[int]:
    return [int(line) for line in ledger.read_text().splitlines()]


def _check_places(lines: list[int], order: list[int]) -> None:
    """Check that runs began in this order, and at most `PLACES` were active at a time: from first to last line."""
    last = {number: at for at, number in enumerate(lines)}
    begun: set[int] = set()
    for at, number in enumerate(lines):
        # Earlier runs without a line have places, too.
        assert len({*order[: order.index(number)]} - begun) < PLACES, (at, lines)
        begun.add(number)
        assert sum(last[each] >= at for each in begun) <= PLACES, (at, lines)
    print(f"{RUNS} runs in {PLACES} places, {KILLS} kills, {len(lines) - RUNS * _LINES} lines of repeated steps")
