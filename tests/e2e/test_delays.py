"""Delayed tasks with a real worker: none early, their lateness, and the worker's cost of waiting.

`$TASKMQ_TEST_DELAYED` is the number of randomly delayed tasks, `$TASKMQ_TEST_DELAY_RATE` the number sent per second,
and `$TASKMQ_TEST_WAITING` the number that waits while the worker's memory is measured; the campaign has 10,000, 500
and 100,000.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Outgoing
from taskmq.model.envelope import JSON, Envelope, encode_envelope
from taskmq.model.topology import DEFAULT_QUEUE, WorkQueue
from tests.e2e.kit import JOBS, PATIENCE, Project, Run, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

DELAYED = int(os.environ.get("TASKMQ_TEST_DELAYED", "300"))
RATE = int(os.environ.get("TASKMQ_TEST_DELAY_RATE", "500"))
WAITING = int(os.environ.get("TASKMQ_TEST_WAITING", "2000"))
SHORTEST, LONGEST = 0.2, 10.0 if DELAYED >= 1000 else 3.0
MOST_GROWTH = 10 * 2**20

TIMED = (
    JOBS
    + """
@app.task
async def timed(number: int, due: int) -> None:
    note("late", number, time.time_ns() // 1_000_000 - due)
"""
)


@pytest.fixture
def project(tmp_path: Path, amqp_url: str) -> Iterator[Project]:
    it = Project(tmp_path, amqp_url, f"local://{tmp_path}/state")
    it.write(TIMED)
    # The campaign overloads a small machine: sending waits.
    it.app.close()
    it.app = TaskMQ(it.url, state=it.state, name="test", send_timeout="60s")
    it._define()

    async def run_timed(number: int, due: int) -> None: ...

    it.app.task(name="jobs.timed")(run_timed)
    yield it
    it.close()


@pytest.mark.timeout(120 + DELAYED / 20)
def test_no_delayed_task_starts_before_its_time(project: Project) -> None:
    run = project.start(concurrency=32)
    rng = random.Random(20261121)

    async def send() -> None:
        async with project.app:
            task = project.app.tasks["jobs.timed"]
            began = time.monotonic()
            sent: list[asyncio.Task[object]] = []
            for number in range(DELAYED):
                due = time.time_ns() // 1_000_000 + round(rng.uniform(SHORTEST, LONGEST) * 1000)
                eta = datetime.fromtimestamp(due / 1000, UTC)
                sent.append(asyncio.create_task(task.options(eta=eta).asend(number, due)))
                if (ahead := began + number / RATE - time.monotonic()) > 0:
                    await asyncio.sleep(ahead)
            await asyncio.gather(*sent)

    asyncio.run(send())
    until(
        lambda: len(_late(project)) >= DELAYED,
        f"{DELAYED} tasks have run",
        within=60 + DELAYED / 20,
        details=lambda: f"{len(_late(project))} have run\n{project.stats()}\n{run.log[-3000:]}",
    )

    late = _late(project)
    assert set(late) == set(range(DELAYED))
    values = sorted(late.values())
    cuts = statistics.quantiles(values, n=100)
    print(
        f"{DELAYED} tasks, {SHORTEST}-{LONGEST} s, {RATE}/s; late by {values[0]} ms "
        f"at least, p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, {values[-1]} ms at most"
    )
    # In milliseconds of the worker, which are the sender's: both read the same clock.
    assert values[0] >= 0
    assert len(project.ledger) == DELAYED


@pytest.mark.timeout(120 + WAITING / 100)
def test_waiting_tasks_take_no_memory_in_the_worker(project: Project) -> None:
    run = project.start(concurrency=32)
    _run_some(project, 500)
    before = _resident(run)

    asyncio.run(_send_waiting(project))
    _run_some(project, 500)

    after = _resident(run)
    print(f"worker {before / 2**20:.1f} MB with none waiting, {after / 2**20:.1f} MB with {WAITING}")
    assert after - before <= MOST_GROWTH


async def _send_waiting(project: Project) -> None:
    """Send tasks that are due in one to two hours."""
    async with project.app:
        session = project.app.sessions.current()
        await session.declare([WorkQueue(DEFAULT_QUEUE)])
        now = time.time_ns() // 1_000_000
        for start in range(0, WAITING, 500):
            messages = [_waiting(number, now + 3_600_000 + number * 36) for number in range(start, start + 500)]
            await asyncio.gather(*(session.broker.publish(message, timeout=60) for message in messages))


def _waiting(number: int, due: int) -> Outgoing:
    envelope = Envelope(
        id=f"waiting-{number}", task="jobs.timed", args=msgspec.Raw(b"[%d,%d]" % (number, due)), eta=due
    )
    return Outgoing(
        queue=DEFAULT_QUEUE,
        body=encode_envelope(envelope, JSON),
        content_type=JSON,
        job_id=envelope.id,
        task=envelope.task,
        due=due,
    )


def _run_some(project: Project, count: int) -> None:
    """Let the worker run something, so that it has allocated its memory."""
    done = len(project.ledger)

    async def send() -> None:
        async with project.app:
            await project.app.tasks["jobs.quick"].asend_many([(number,) for number in range(count)])

    asyncio.run(send())
    until(lambda: len(project.ledger) == done + count, f"{count} more have run", within=PATIENCE * 2)


def _late(project: Project) -> dict[int, int]:
    """Return the lateness of each task in milliseconds."""
    return {int(line[1]): int(line[2]) for line in project.ledger if line[0] == "late"}


def _resident(run: Run) -> int:
    (worker,) = run.children
    return int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
