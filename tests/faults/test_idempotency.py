"""Tasks with idempotency keys, all delivered twice or more, under workers that are killed and frozen.

$TASKMQ_TEST_IDEMPOTENT_TASKS   keys (default 240; campaign 100,000)
$TASKMQ_TEST_IDEMPOTENT_RATE    approximate keys per second if nothing is killed (default 60)

Each key is sent once, then again under the same job id, and again as another job. A run asks an external store for
its effect, takes its time, and writes it, with the key's fencing token. If the same store ignores the tokens, it
takes effects twice: so the test depends on the fencing.
"""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.model.states import JobState
from tests.e2e.kit import LoneWorker, Project, until
from tests.faults.effects import CLIENT, Effects

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

TASKS = int(os.environ.get("TASKMQ_TEST_IDEMPOTENT_TASKS", "240"))
RATE = float(os.environ.get("TASKMQ_TEST_IDEMPOTENT_RATE", "60"))
WORKERS = 3
CONCURRENCY = 16
LEASE = 2.0
FROZEN = 10.0
_CHUNK = 2000
_SAMPLE = 5000

JOBS = f"""
import asyncio, os, random
from taskmq import Context, TaskMQ
{CLIENT}
app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
store = Store("ledger.sock")
NAP = float(os.environ["JOBS_NAP"])

@app.task(idempotency_key="key")
async def pay(context: Context, key: str) -> str:
    run = f"{{context.job_id}}/{{os.getpid()}}"
    if await store.ask("open", key, context.fencing_token, run) == "go":
        await asyncio.sleep(random.uniform(0, 2 * NAP))
        await store.ask("write", key, context.fencing_token, run)
    return key
"""


@dataclass
class Troubles:
    """The faults of the workers."""

    killed: int = 0
    frozen: int = 0
    errors: list[BaseException] = field(default_factory=list[BaseException])


@pytest.mark.timeout(240 + TASKS / 20)
def test_every_effect_is_accepted_once_whatever_happens_to_workers(project: Project) -> None:
    keys = [f"order-{number}" for number in range(TASKS)]
    began = time.monotonic()
    with (
        Effects(project.folder / "ledger.sock", is_fenced=True) as effects,
        _run_troubled(project, effects) as troubles,
    ):
        asyncio.run(_send(project.app, keys))
        until(
            lambda: len(effects.accepted) == TASKS and troubles.killed > 0 and project.waiting() == 0,
            "all is done",
            within=90 + TASKS / 10,
            details=lambda: f"{len(effects.accepted)} of {TASKS}, {project.stats()}",
        )
        seconds = time.monotonic() - began
    if troubles.errors:
        raise troubles.errors[0]
    results = asyncio.run(_results(project.app, keys))

    counts = Counter(effects.accepted.values())
    print(
        f"{TASKS} keys, {3 * TASKS} messages: {seconds:.0f} s at load {os.getloadavg()[0]:.1f}, "
        f"{troubles.killed} kills, {troubles.frozen} frozen, "
        f"runs {sum(effects.opened.values())}, of these {effects.repeated} found the effect there and "
        f"{effects.overtaken} overtook another, writes refused {effects.late}; "
        f"effects accepted per key {dict(counts)}"
    )
    assert troubles.frozen
    assert len(effects.accepted) == TASKS
    assert counts == {1: TASKS}
    assert set(results.values()) == {JobState.SUCCEEDED}


@pytest.mark.timeout(240)
def test_without_fencing_the_same_run_has_effects_twice(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    # Few keys, so that none expires before the first worker is frozen.
    monkeypatch.setenv("JOBS_NAP", _nap(min(RATE, 60)))
    keys = [f"order-{number}" for number in range(min(TASKS, 240))]
    with Effects(project.folder / "ledger.sock", is_fenced=False) as effects, _run_troubled(project, effects):
        asyncio.run(_send(project.app, keys))
        until(lambda: max(effects.accepted.values(), default=0) > 1, "a key has two effects", within=90)


@pytest.fixture
def project(tmp_path: Path, amqp_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("JOBS_NAP", _nap(RATE))
    it = Project(tmp_path, amqp_url, redis_url)
    it.write(JOBS)

    async def pay(key: str) -> str:
        return key

    it.app.task(name="jobs.pay", idempotency_key="key")(pay)
    yield it
    it.close()


def _nap(rate: float) -> str:
    """Return the average seconds of one run at that rate."""
    return f"{WORKERS * CONCURRENCY / rate:.3f}"


async def _send(app: TaskMQ, keys: list[str]) -> None:
    """Send all keys once, again under the same job id, and again as other jobs, in another order."""
    async with app:
        task = app.tasks["jobs.pay"]
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            for _ in range(2):
                await asyncio.gather(*(task.options(job_id=f"job-{key}").asend(key) for key in chunk))
                random.shuffle(chunk)
            await task.asend_many([(key,) for key in chunk])


async def _results(app: TaskMQ, keys: list[str]) -> dict[str, JobState]:
    sample = random.sample(keys, min(len(keys), _SAMPLE))
    async with app:
        found = await asyncio.gather(*(app.job(f"job-{key}").astate() for key in sample))
    return dict(zip(sample, found, strict=True))


@contextmanager
def _run_troubled(project: Project, effects: Effects) -> Iterator[Troubles]:
    """Run workers, and kill one, or freeze it for longer than its lease, about once a second."""
    troubles, is_over = Troubles(), threading.Event()

    def start(number: int) -> LoneWorker:
        return LoneWorker(
            project,
            project.folder / f"log-{number}",
            concurrency=CONCURRENCY,
            prefetch=CONCURRENCY,
            lease=LEASE,
            max_crashes=0,
            name=f"w{number}",
        )

    def trouble() -> None:
        try:
            _make_trouble(workers, troubles, is_over, start, effects)
        except BaseException as error:
            troubles.errors.append(error)

    workers = [start(number) for number in range(WORKERS)]
    for worker in workers:
        worker.wait_until_ready()
    thread = threading.Thread(target=trouble)
    thread.start()
    try:
        yield troubles
    finally:
        is_over.set()
        thread.join(60)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGCONT)
            worker.end(signal.SIGKILL)


def _make_trouble(
    workers: list[LoneWorker],
    troubles: Troubles,
    is_over: threading.Event,
    start: Callable[[int], LoneWorker],
    effects: Effects,
) -> None:
    dice, number = random.Random(5), WORKERS
    while not effects.opened and not is_over.wait(0.02):
        pass
    while not is_over.wait(dice.uniform(0.3, 1.0)):
        place = number % WORKERS
        worker = workers[place]
        if troubles.frozen <= troubles.killed:
            # Until another worker has taken over and used one of its keys: it wakes up in the middle of its runs.
            worker.process.send_signal(signal.SIGSTOP)
            troubles.frozen += 1
            before, end = effects.overtaken, time.monotonic() + FROZEN
            while effects.overtaken == before and time.monotonic() < end and not is_over.wait(0.05):
                pass
            worker.process.send_signal(signal.SIGCONT)
        else:
            worker.end(signal.SIGKILL)
            troubles.killed += 1
            workers[place] = start(number)
        number += 1
